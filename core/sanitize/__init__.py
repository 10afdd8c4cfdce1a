"""Foreign text made safe to store and print, and a job's text without its secrets: nothing a kernel, a job or a user wrote is trusted."""

from probing_cluster.core.sanitize.clean_text import (
    MAX_MESSAGE_CHARS,
    clean,
    clean_all,
    without_secrets,
    without_secrets_in,
    without_sequences,
)

__all__ = [
    "MAX_MESSAGE_CHARS",
    "clean",
    "clean_all",
    "without_secrets",
    "without_secrets_in",
    "without_sequences",
]
