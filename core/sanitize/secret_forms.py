"""Keys that their makers begin alike, and addresses whose path is a secret: known by their form, whatever stands beside them.

Prefixes and lengths are those that gitleaks and detect-secrets list, as far as a prefix is a maker's own and long enough not to begin words.
"""

from __future__ import annotations

import re

from probing_cluster.core.sanitize import literals

_LETTERS, _MIXED = 20, 8
"""Least length of a random part of a key: of letters or digits alone, and of both."""
_RANDOM_PART = (
    rf"(?:[A-Za-z0-9]{{0,64}}[_-]){{0,16}}?(?:[A-Za-z0-9]{{{_LETTERS}}}"
    rf"|(?=[A-Za-z]{{0,{_LETTERS}}}[0-9])(?=[0-9]{{0,{_LETTERS}}}[A-Za-z])[A-Za-z0-9]{{{_MIXED}}})"
)
"""Names that only begin alike have none: `hf_hub_download`, `sk-learn-contrib`, `hf_run_20240501`."""
_FORMS: dict[str, tuple[str, ...]] = {
    _RANDOM_PART: (
        "sk-", "glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glptt-", "glagent-", "gloas-", "glcbt-", "glimt-", "glffct-", "pypi-", "tskey-",
        "hf_", "github_pat_", "wandb_v1_", "npm_", *(f"gh{kind}_" for kind in "pousr"), *(f"{kind}k_{stage}_" for kind in "sr" for stage in ("live", "test", "prod")),
    ),
    rf"(?:[0-9]{{1,16}}-|{_RANDOM_PART})": ("xapp-", *(f"xox{kind}-" for kind in "abeoprs")),
    rf"(?=[\w-]{{16}}){_RANDOM_PART}": ("AIza",),
    r"(?=[0-9]{0,11}[A-Z])[A-Z0-9]{12}": ("AKIA", "ASIA", "ABIA"),
    r"[A-Za-z0-9]{6}[\w-]{2,4096}\.[\w-]": ("eyJ",),
    r"(?=[A-Za-z]{0,16}[0-9])[A-Za-z0-9]{16}": ("LTAI",),
    r"[A-Fa-f0-9]{32}": ("dapi", "shpat_", "shpca_", "shppa_", "shpss_"),
    r"(?:\w{1,16}_)?[A-Fa-f0-9]{40}": ("sgp_", "pul-"),
    r"[A-Fa-f0-9]{48}": ("rubygems_", "sntryu_", "dop_v1_", "doo_v1_", "dor_v1_", "xkeysib-"),
    r"[A-Fa-f0-9]{24}-": ("PMAK-",),
    r"[0-9]{11}[A-Za-z0-9]{24}": ("ntn_",),
    r"[A-Za-z0-9]{34}": ("r8_", "api_org_", "lin_api_", "gsk_", "pplx-", "xai-", "AKCp", "AGE-SECRET-KEY-"),
    r"[A-Za-z0-9+/]{34}": ("glc_",),
    r"[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}": ("glsa_",),
    rf"(?=[\w=.-]{{22}}){_RANDOM_PART}": (
        "nvapi-", "GOCSPX-", "sq0atp-", "sq0csp-", "dckr_pat_", "dckr_oat_", "pscale_tkn_", "pscale_pw_", "pscale_oauth_", "whsec_", "sntrys_", "hvs.", "hvb.", "hvr.",
        "ya29.",
    ),
    r"[\w-]{16,32}\.[\w-]{24}": ("SG.",),
    r"[\w+/-]{100}": ("ATATT3", "ops_eyJ"),
}  # fmt: skip
"""What must stand behind the prefixes, at least."""
_PREFIXES = tuple(prefix for prefixes in _FORMS.values() for prefix in prefixes)
_PREFIXED = re.compile(
    rf"(?<![A-Za-z0-9])(?={literals.any_of(_PREFIXES)})"
    rf"(?P<name>{'|'.join(f'{literals.any_of(prefixes)}(?={form})' for form, prefixes in _FORMS.items())})[\w-]+(?:[+/](?=[\w+/-]{{16}})[\w-]*)*(?:\.[\w-]+){{0,2}}"
)
"""A prefix is looked at with no character taken: one without a key hides no key that begins behind it."""
_S = r"\\?/"
"""A slash; some writers of JSON put a backslash in front of it."""
_OF_HOST = rf"(?:(?::{_S}{_S}[^\s/\"'<>\\]{{1,255}}|\b(?:[Uu][Rr][Ll]:?|GET|POST|PUT) )(?:{_S}[\w.~%-]{{1,64}}){{0,6}}?|(?<![\w.~-]))"
"""Before the path that a server gave a hook, as far as it may have one; folders may have the same names."""
_HOOK = re.compile(
    rf"(?P<name>hooks\.slack(?:-gov)?\.com(?::\d{{1,5}})?{_S}(?:services|workflows|triggers){_S}(?:[TE]\w{{2,16}}{_S}\w{{1,24}}{_S})?"
    rf"|{_S}services{_S}T[A-Z0-9]{{7,12}}{_S}B[A-Z0-9]{{7,12}}{_S}(?=[A-Za-z0-9]{{20}})|{_S}workflows{_S}T[A-Z0-9]{{7,12}}{_S}A[A-Z0-9]{{7,12}}{_S}(?=\d{{9,24}}\\?/)|{_S}triggers{_S}[TE][A-Z0-9]{{7,12}}{_S}(?=\d{{9,24}}\\?/)"
    rf"|{_S}webhooks{_S}\d{{15,24}}{_S}|{_S}webhook(?:b2)?{_S}(?=[0-9a-f]{{8}}-)|{_S}open-apis{_S}bot{_S}v2{_S}hook{_S}|{_S}cgi-bin{_S}webhook{_S}send\?"
    rf"|{_S}hooks{_S}catch{_S}\d{{1,12}}{_S}|{_OF_HOST}{_S}(?:hooks{_S}(?:[A-Za-z0-9]{{10,24}}{_S})?(?=[A-Za-z]{{0,20}}\d)(?=\d{{0,20}}[A-Za-z])(?=[A-Za-z0-9]{{20}})|(?:trigger{_S}[\w-]{{1,64}}{_S}(?:json{_S})?)?with{_S}key{_S})"
    rf"|(?i:webhook(?:[\w.-]{{0,24}}ur[li]\w{{0,4}}[\"']?[ \t]{{0,4}}[:=]|[\w.-]{{0,24}}=|[\"']:)[ \t]{{0,4}}[\"']?https?):{_S}{_S}[^\s/\"'<>\\]{{1,255}}{_S})(?:[^\s\"'<>)\\]|\\/)+"
)
"""Paths of services that take a message from whoever knows them: Slack, Discord, Teams, Feishu and Lark, WeCom, Mattermost, Rocket.Chat, Zapier, IFTTT; and of an address that is called a webhook's.

An exception may name the host apart. Without Slack's, its identifiers must have Slack's lengths.
"""
_IN_THE_MIDDLE = re.compile(
    r"(?<![\w.~-])[\w~.]{3}\dQ~[\w~.-]{31,34}(?![\w~-])|(?:(?<=/bot)|(?<![\w.~-]))\d{8,10}:AA[\w-]{33}(?![\w-])|(?<=MIT-MAGIC-COOKIE-1)(?P<gap>[ \t]{1,8})[0-9a-f]{32}\b"
)
"""A client secret of Azure, a bot's token of Telegram, the key to an X server as xauth prints it."""
_OF_HOOKS = ("/services", "/workflows", "/triggers", "webhook", "/open-apis", "/hooks", "/key")
_OF_THE_MIDDLE = ("q~", ":aa", "magic-cookie")
SIGNS = (*(prefix.lower() for prefix in _PREFIXES), *_OF_HOOKS, *_OF_THE_MIDDLE)
"""One of these, in small letters, is in every text that `masked` changes."""


def masked(text: str, mask: str) -> str:
    """`text` with `mask` behind the makers' prefixes and in place of secret parts of addresses."""
    small = text.lower()
    if any(sign in small for sign in _OF_HOOKS):
        text = _HOOK.sub(rf"\g<name>{mask}", text)
    if any(sign in small for sign in _OF_THE_MIDDLE):
        text = _IN_THE_MIDDLE.sub(lambda found: f"{found['gap'] or ''}{mask}", text)
    return _PREFIXED.sub(rf"\g<name>{mask}", text)
