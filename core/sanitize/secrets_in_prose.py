"""Secrets that a sentence gives: `with password Sommer2026!`, `my token is 'x'`, `WANDB_API_KEY 0a1b`.

A sentence about a secret has the same words (`password is required`, `invalid token at line 3`). So a value counts if nobody writes it as
a word, or if it is the clause's last word and none that such sentences end with.
"""

from __future__ import annotations

import re

_LINK = re.compile(
    r"(?:(?:for|of|von|für)(?:[ \t][^\s:=]{1,64}){1,3}?[ \t])?(?:is|was|lautet|ist|est|es)(?:[ \t]{1,4}|[ \t]{0,4}[:=][ \t]{0,4})",
    re.IGNORECASE,
)
_SET_TO = re.compile(
    r"(?P<set>(?:(?:is|was|has been|have been)[ \t])?(?:set|changed|reset|updated|rotated)[ \t])?to[ \t]{1,4}",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\b(?:set|setting|chang(?:e|ed|ing)|reset|resetting|updat(?:e|ed|ing))[ \t](?:\w{1,16}[ \t]){0,2}$",
    re.IGNORECASE,
)
_PERIOD = re.compile(r"\d{1,4}-?[a-z]{1,8}$")
_VALUE = re.compile(r"(?P<quoted>\"[^\"\n]*\"?|'[^'\n]*'?|`[^`\n]*`?)|\S+")
_BEFORE = re.compile(r"(?:(?P<word>[A-Za-z]{1,24})'?s?[ \t])?(?:[\"'])?$")
_BEFORE_CHARS = 32
_CLAUSE_ENDS = re.compile(
    r"[ \t]{0,8}(?:$|[\n.,;!?)\]}|(&\-]|(?:and|for|at|on|but|from|und|für)\b)", re.IGNORECASE
)
_TRAILING = ".,;:!?)]}'\"`"
_PLACEHOLDER = re.compile(
    r"\*+|[xX•.]{3,}$|<.*>$|\[.*\]$|\{.*\}$|%\w$|\$\{?\w+\}?$|\(|[^\w\s]{1,3}$|(?:\d{1,4}[-/:.]){1,3}\d{1,4}$|\d{1,3}$|[~/]|\.{1,2}/"
)
_PLAIN = re.compile(r"[^\W\d_]{1,32}(?:['\u2019-][^\W\d_]{1,24}){0,4}$")
"""A word, also one with a hyphen or an apostrophe."""
_ENDING = re.compile(r"[a-z-]{3,}(?:ed|ing|able|ible|ary|ory|ful|less|ive|ous|ion|ions|ment)$")
_OF_SENTENCES = frozenset((
    "abgelaufen", "about", "again", "algorithm", "as", "auth", "bad", "base64", "be", "been", "below", "blank", "by", "can", "check", "correct", "does", "due", "empty", "erforderlich", "falsch", "fehlt", "going", "ungültig", "entry", "error",
    "errors", "failure", "field", "file", "for", "from", "given", "hash", "here", "hidden", "id", "in", "incorrect", "input", "insecure", "invalid", "is",
    "and/or", "confidential", "database", "present", "tuple", "expiré", "requis", "invalide", "erroné", "obligatoire", "vide", "faux", "nécessaire", "manquant", "désactivé",
    "it", "kept", "lengths", "length", "line", "list", "login", "long", "md5", "mandatory", "manager", "mismatch", "mode", "name", "names", "needed", "no",
    "none", "not", "null", "oauth2", "of", "ok", "okay", "old", "on", "only", "optional", "or", "out", "page", "policy", "prompt", "reset", "right", "safe",
    "same", "secret", "secure", "sent", "set", "sha256", "sha512", "short", "simple", "size", "store", "string", "strong", "support", "text", "that", "this",
    "to", "too", "true", "false", "twice", "type", "undefined", "unchanged", "unknown", "unset", "unusable", "url", "valid", "value", "via", "was", "weak",
    "were", "with", "wrong", "yes", "you", "your",
))  # fmt: skip
"""Words that stand behind the name of a secret in sentences about one."""
_GIVES = frozenset(("with", "using", "my", "our", "use", "mit", "mein", "avec", "con"))
"""Words in front of a name that announce its value."""
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "passwort", "kennwort")
PASSES_OF = frozenset((
    "admin", "database", "db", "email", "ftp", "key", "login", "mail", "mongo", "mysql", "pg", "postgres", "redis", "root", "smtp", "ssh",
    "sudo", "user",
))  # fmt: skip
"""Words that make a pass or a `pw` a password."""
_OWNERS = PASSES_OF | {"my", "our", "mein"}
_CHOSEN = re.compile(
    r"(?!\$)(?=\S{6})(?=\S{0,64}\d)(?:(?=\S{0,64}[A-Za-z])(?=\S{0,64}[!#$&@?])|(?=[A-Z]{0,64}[a-z])(?=[A-Za-z])[A-Za-z0-9]+(?:[\s,;.)\]}\"']|$))"
)
"""What people choose for a password, and no value with a unit, size of a grid or name of a functional (`25us`, `4x4x4`, `PW92`)."""
_KEYS_OF = frozenset((
    "access", "anthropic", "api", "encryption", "hf", "kaggle", "licence", "license", "openai", "private", "secret", "signing", "ssh", "wandb",
))  # fmt: skip
_OF_KEY = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(_KEYS_OF))})[_-]key$")
"""The same, as one word."""
_TOKENS_OF = frozenset(
    ("access", "api", "auth", "bearer", "bot", "github", "gitlab", "hf", "identity", "refresh", "session")
)
_OF_A_PARSER = frozenset((
    "bos", "current", "eos", "expected", "first", "found", "illegal", "input", "invalid", "last", "mask", "next", "offending", "output", "pad", "previous",
    "sep", "special", "stop", "this", "unexpected",
))  # fmt: skip
"""Words in front of a token of a parser's or a language model's text."""
_LONG = 8
_RANDOM = re.compile(r"(?=[\w./+=-]{0,256}[A-Za-z])(?=[\w./+=-]{0,256}\d)[\w./+=-]+$")


def word_before(text: str, begin: int) -> str:
    """The word in front of a name that begins at `begin`, in small letters; empty for none, and behind any other sign than one blank."""
    found = _BEFORE.search(text, max(0, begin - _BEFORE_CHARS), begin)
    return (found["word"] or "").lower() if found else ""


def joined(text: str, begin: int, name: str) -> bool:
    """Whether two words name a secret as one would: `API key`, `access token`, `my pw`."""
    before, name = word_before(text, begin), name.lower()
    of = {"key": _KEYS_OF, "token": _TOKENS_OF, "pw": _OWNERS}.get(name, frozenset())
    return before in of


def looks_chosen(value: str) -> bool:
    """Whether a `pw`, which is a plane wave or a pulse's width as often, has a password as its value."""
    return _CHOSEN.match(value.lstrip("\"'`")) is not None


def value_at(text: str, begin: int, at: int, name: str, *, linked: bool = False) -> tuple[int, int] | None:
    """Begin and end of the secret that the text at `at`, behind the name at `begin`, gives; None for no secret.

    `linked` if a sign or a verb stands between name and value; here a verb is looked for behind a blank.
    """
    order = None if linked else _set_to(text, begin, at)
    if not linked and (verb := order or _LINK.match(text, at)) is not None:
        at, linked = verb.end(), True
    found = _VALUE.match(text, at)
    if found is None or not _is_secret(text, begin, name, found, linked=linked):
        return None
    if (
        order is not None
        and found["quoted"] is None
        and (_PLAIN.match(_core(found[0])) or _PERIOD.match(_core(found[0])))
    ):
        return None
    return found.span()


def _set_to(text: str, begin: int, at: int) -> re.Match[str] | None:
    """`set to` behind a name, or the `to` of `set the password to`; what follows is a word's own meaning as often (`set to expire`)."""
    found = _SET_TO.match(text, at)
    if found is None or found["set"] or _ORDER.search(text[max(0, begin - _BEFORE_CHARS) : begin]):
        return found
    return None


def _is_secret(text: str, begin: int, name: str, found: re.Match[str], *, linked: bool) -> bool:
    quoted = found["quoted"] is not None
    core = found[0].strip("\"'`") if quoted else _core(found[0])
    small = name.lower()
    if (
        not core
        or _PLACEHOLDER.match(core)
        or _PLACEHOLDER.match(found[0].rstrip(_TRAILING[:6]))
        or _is_of_sentences(core)
    ):
        return False
    if small.endswith("pw") and not (linked and (joined(text, begin, name) or looks_chosen(core))):
        return False
    is_french = small == "passe" and word_before(text, begin) == "de"
    if small.endswith(_PASSWORDS) or (small.endswith(("pw", "pwd")) and linked) or is_french:
        return quoted or not _PLAIN.match(core) or _is_last(text, begin, found, core, linked=linked)
    long = len(core) >= _LONG and _RANDOM.match(core) is not None
    if joined(text, begin, name) or small.endswith(("token", "secret", "key")):
        if name.isupper() and "_" in name:
            return long
        if small.endswith("key") and not (joined(text, begin, name) or _OF_KEY.search(small)):
            return False
        if small == "token" and word_before(text, begin) in _OF_A_PARSER:
            return False
        if small in ("token", "secret") and not linked:
            return long and core.isalnum() and len(core) >= 2 * _LONG
        return long or (linked and quoted and any(ch.isalnum() for ch in core))
    return False


def _is_last(text: str, begin: int, found: re.Match[str], core: str, *, linked: bool) -> bool:
    """Whether a plain word is the value: the clause's last word, behind words that announce one."""
    if found.end() == found.start() + len(core) and not _CLAUSE_ENDS.match(text, found.end()):
        return False
    before = word_before(text, begin)
    is_first = not text[max(0, begin - 1) : begin].strip() and not before and core.islower()
    return linked or before in _GIVES or is_first


def _core(word: str) -> str:
    """The word without the punctuation of its sentence."""
    return word.strip("\"'`").rstrip(_TRAILING) or word


def _is_of_sentences(word: str) -> bool:
    small = word.lower()
    return (
        small in _OF_SENTENCES
        or (word == small and _ENDING.match(word) is not None)
        or (word.istitle() and _ENDING.match(small) is not None)
    )
