"""One TOML file configures everything; an unknown key is an error that lists the valid ones.

The file is `$PROBING_CONFIG`, else `/etc/probing-cluster/probing.toml`; without one the
defaults stand. Each section is a frozen dataclass; a field's `doc` is its entry in the manual that
manual.py prints. The sections lie in one module per kind of reader; `file` puts them together.
"""

from probing_cluster.core.settings.file import DEFAULT_PATH, Settings, load, parse, read
from probing_cluster.core.settings.of_messages import (
    LemonSettings,
    MailSettings,
    NoticeRoute,
    NoticesSettings,
)
from probing_cluster.core.settings.of_policy import DiagnosticsSettings, PolicySettings, RepairSettings
from probing_cluster.core.settings.of_service import (
    AttributionSettings,
    ClusterSettings,
    DatabaseSettings,
    DoorSettings,
    ServiceSettings,
    SlurmSettings,
    WebSettings,
)
from probing_cluster.core.settings.on_nodes import AgentSettings, ChecksSettings, KeptSettings, LiveSettings

__all__ = [
    "DEFAULT_PATH",
    "AgentSettings",
    "AttributionSettings",
    "ChecksSettings",
    "ClusterSettings",
    "DatabaseSettings",
    "DiagnosticsSettings",
    "DoorSettings",
    "KeptSettings",
    "LemonSettings",
    "LiveSettings",
    "MailSettings",
    "NoticeRoute",
    "NoticesSettings",
    "PolicySettings",
    "RepairSettings",
    "ServiceSettings",
    "Settings",
    "SlurmSettings",
    "WebSettings",
    "load",
    "parse",
    "read",
]
