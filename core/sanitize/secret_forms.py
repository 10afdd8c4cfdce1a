"""Keys that their makers begin alike, and addresses whose path is a secret: known by their form, whatever stands beside them.

The prefixes are those that gitleaks and detect-secrets list, as far as they are a maker's own and long enough not to begin words.
"""

from __future__ import annotations

import re

from probing_cluster.core.sanitize import literals

_DASHED = (
    "sk-", "glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glptt-", "glagent-", "gloas-", "glcbt-", "glimt-", "glffct-", "xapp-", "pypi-",
    "nvapi-", "pplx-", "xai-", "tskey-", "xkeysib-", "GOCSPX-", "PMAK-", "pul-", "sq0atp-", "sq0csp-", "sk-ant-", "AGE-SECRET-KEY-",
)  # fmt: skip
_UNDERSCORED = (
    "hf_", "api_org_", "github_pat_", "wandb_v1_", "npm_", "gsk_", "r8_", "dckr_pat_", "dckr_oat_", "lin_api_", "ntn_", "dop_v1_", "doo_v1_",
    "dor_v1_", "glc_", "glsa_", "sgp_", "pscale_tkn_", "pscale_pw_", "pscale_oauth_", "rubygems_", "whsec_", "sntrys_", "sntryu_", "shpat_",
    "shpca_", "shppa_", "shpss_", "ops_eyJ",
)  # fmt: skip
_DOTTED = ("hvs.", "hvb.", "hvr.", "SG.", "ya29.")
_RUNNING_ON = ("AIza", "AKIA", "ASIA", "ABIA", "LTAI", "AKCp", "dapi", "ATATT3", "eyJ")
"""Prefixes with no sign behind them; a word can begin so by chance."""
_SETS = (
    *(f"gh{kind}_" for kind in "pousr"),
    *(f"xox{kind}-" for kind in "abeoprs"),
    *(f"{kind}k_{stage}_" for kind in "sr" for stage in ("live", "test", "prod")),
)
_PREFIXES = (*_DASHED, *_UNDERSCORED, *_DOTTED, *_RUNNING_ON, *_SETS)
_PREFIXED = re.compile(
    rf"(?P<name>{literals.any_of(_PREFIXES)})(?P<rest>[\w-]{{8,4096}}(?:\.[\w-]{{1,4096}}){{0,2}})"
)
_HOOK = re.compile(
    r"(?P<name>(?<=/services/)T\w{2,16}/B\w{2,16}/|(?<=/)(?:workflows|triggers)/T\w{2,16}/\w{1,24}/|(?<=/api/webhooks/)\d{15,24}/|(?<=/webhookb2/)"
    r"|(?<=/open-apis/bot/v2/hook/)|(?<=/cgi-bin/webhook/send)\?)[^\s\"'<>)]+"
)
"""Paths of chats that take a message from whoever knows them: Slack, Discord, Teams, Feishu and Lark, WeCom. An exception may name the host apart."""
_IN_THE_MIDDLE = re.compile(
    r"(?<![\w.~-])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~-])|(?:(?<=/bot)|(?<![\w.~-]))\d{8,10}:AA[\w-]{33}(?![\w-])|(?<=MIT-MAGIC-COOKIE-1)(?P<gap>[ \t]{1,8})[0-9a-f]{32}\b"
)
"""A client secret of Azure, a bot's token of Telegram, the key to an X server as xauth prints it."""
_OF_HOOKS = ("/services/", "/workflows/", "/triggers/", "/webhook", "/open-apis/bot/")
_OF_THE_MIDDLE = ("q~", ":aa", "magic-cookie")
SIGNS = (*(prefix.lower() for prefix in _PREFIXES), *_OF_HOOKS, *_OF_THE_MIDDLE)
"""One of these, in small letters, is in every text that `masked` changes."""
_UPPER, _UPPER_CHARS = ("AKIA", "ASIA", "ABIA"), 12
_LETTERS, _MIXED = 20, 8
"""Least length of a random part of a key: of letters alone, and of others."""


def masked(text: str, mask: str) -> str:
    """`text` with `mask` behind the makers' prefixes and in place of secret parts of addresses."""
    small = text.lower()
    if any(sign in small for sign in _OF_HOOKS):
        text = _HOOK.sub(rf"\g<name>{mask}", text)
    if any(sign in small for sign in _OF_THE_MIDDLE):
        text = _IN_THE_MIDDLE.sub(lambda found: f"{found['gap'] or ''}{mask}", text)
    return _PREFIXED.sub(lambda found: f"{found['name']}{mask}" if _is_key(found) else found[0], text)


def _is_key(found: re.Match[str]) -> bool:
    """Whether a key follows the prefix; names that only begin alike (`hf_hub_download`, `sk-learn-contrib`) stay."""
    name, rest, at = found["name"], found["rest"], found.start()
    if at and found.string[at - 1].isascii() and found.string[at - 1].isalnum():
        return False
    if name == "eyJ":
        return "." in rest
    if name in _UPPER:
        return len(rest) >= _UPPER_CHARS and rest[:_UPPER_CHARS].isalnum() and rest[:_UPPER_CHARS].isupper()
    if name in _RUNNING_ON:
        return len(rest) >= _LETTERS - 4 and not rest.isalpha()
    parts = re.split(r"[-_.]", rest)
    return any(len(p) >= _LETTERS or (len(p) >= _MIXED and not p.isalpha()) for p in parts)
