"""The program's own error, or only its exit."""

from probing_cluster.attribution.verdict.rules.user_error.bare_exit import CAUSE
from probing_cluster.attribution.verdict.rules.user_error.own_error import NEAR, rule

__all__ = ["CAUSE", "NEAR", "rule"]
