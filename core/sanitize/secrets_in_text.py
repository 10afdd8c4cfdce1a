"""Secrets in text that a job printed: what is one, by its form, its name or what stands before it, and the text without them.

The forms are those that secret scanners (gitleaks, detect-secrets) look for. Such scanners report places in files and take no text apart;
their patterns are not made for hostile input, so none is a dependency. Every pattern here takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from probing_cluster.core import digits
from probing_cluster.core.sanitize import literals, secret_forms, secrets_in_prose

MASK = "***"

_PEM = re.compile(
    r"(?P<head>-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----)(?:(?!-----(?:BEGIN|END) )[\s\S])*(?P<tail>-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----)?"
)
_PEM_LINE = re.compile(
    r"^(?=[^a-z\n]{0,80}[a-z])(?=[^A-Z\n]{0,80}[A-Z])(?=[^0-9\n]{0,80}[0-9])[A-Za-z0-9+/]{60,76}={0,2}[ \t]{0,8}$",
    re.MULTILINE,
)
"""A line of a key's body by itself, in capitals, small letters and digits: sequences and check sums have not all of them."""
_PEM_END = re.compile(
    r"^[A-Za-z0-9+/]{1,76}={0,2}[ \t]{0,8}(?=\n-----END [A-Z0-9 ]{0,32}PRIVATE KEY)", re.MULTILINE
)
_IN_URL = re.compile(
    r"(?:(?<=://)|(?<=:\\/\\/))(?:[^/\s\"'<>?#]+@|(?!\[)[^/\s\"'<>?#:@]*:(?!\d{0,5}(?:\\?/|[?#]))[^\s\"'<>:@]*(?::(?!\\?/\\?/)[^\s\"'<>:@]*)*@(?:[^/\s\"'<>?#@]*@)*)"
)
"""User and password, which may hold `/`, `?` and `#`. A host or a host and its port before one of these begins a path: that may hold `@`."""
_IN_QUERY = re.compile(
    r"(?P<name>[?&](?:X-Amz-(?:Signature|Security-Token)|signature|sig|key|token)=)[^&\s\"'<>]+",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"(?P<name>\bAuthorization\\?[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\?[\"']?(?:(?:Bearer|Basic|Token|Digest|ApiKey|Negotiate)[ \t]{1,8}\\?[\"']?)?)"
    r"[^\s\"'\\,;]+",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(?P<name>\bBearer[ \t]{1,8})(?!(?:tokens?|auth\w{0,16}|scheme|header|credentials?|realm|error|format|of|is|was|and|or|not|must|should|for|in|to)\b)[\w.~+/=-]+",
    re.IGNORECASE,
)
_BASIC = re.compile(r"(?P<name>\b[Bb]asic[ \t]{1,8})(?=\w{0,64}(?:\d|[a-z][A-Z]))[\w.~+/=-]{6,}")
_USER = re.compile(
    r"(?P<name>(?<!\S)(?:-u|--(?:proxy-)?user)(?:[ \t=]{1,8}|(?<=-u))[\"']?)[^\s:\"'=]{1,256}:(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s\"']+)"
)
"""Name and password as curl and wget take them; to other commands such an option is a user's and a group's number."""
_CLIENTS = ("curl", "wget")
_USER_OF_ANY = re.compile(
    r"(?P<name>(?<!\S)(?:-u|--user)[ \t=]{1,8}[A-Za-z][\w.@-]{0,63}:)(?=[^\s:]{0,64}\d)(?=[^\s:]{0,64}[A-Za-z])[^\s:\"'/]{8,128}(?!\S)"
)
"""To another command such a word is a name and a password if it looks like one; a group's name seldom does."""
_ORACLE = re.compile(
    r"(?P<name>\b(?:sqlplus|expdp|impdp|sqlldr|rman)(?:[ \t]{1,8}(?:-\w{1,8}|target)){0,4}[ \t]{1,8}(?:userid=)?[A-Za-z][\w$#]{0,63}/)"
    r"(?:\"[^\"\n]+\"?|[^\s@/\"'.*]{1,128}(?=@|\s|$)|[^\s@/\"'*]{1,128}(?=@\S))"
)
"""Name and password of Oracle's commands."""
_WANDB_LOGIN = re.compile(
    r"(?P<name>\bwandb[ \t]{1,8}login(?:[ \t]{1,8}--?[\w-]{1,32}(?:=\S{0,256}|[ \t]{1,8}https?://\S{0,256})?){0,8}[ \t]{1,8}[\"']?)"
    r"(?P<value>(?=[\w-]{0,64}\d)[\w-]{20,})"
)
"""A key as an argument by itself: long, with a digit."""
_OPTION_P = re.compile(
    r"(?P<name>(?<![\w.-])(?:sshpass(?:[ \t]{1,8}-(?:v|P[ \t]{0,8}\S{1,64})){0,4}[ \t]{1,8}-v{0,2}p[ \t]{0,8}"
    r"|(?:docker|podman|nerdctl)[ \t]{1,8}login(?:[ \t]{1,8}(?!-p)[^\s;|&]{1,256}){0,12}[ \t]{1,8}-p[ \t=]{0,8}"
    r"|(?:mysql|mariadb)(?:-?(?:admin|check|dump|import|show|slap))?(?:[ \t]{1,8}(?!-p)[^\s;|&]{1,256}){0,12}[ \t]{1,8}-p))"
    r"(?!\d{1,5}:\d{1,5}(?!\S))(?P<value>(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s\"'])+)"
)
"""Commands whose `-p` is a password, MySQL's only without a blank behind it. `-p3306:3306` is a container's port."""
_COOKIE = re.compile(
    r"(?P<name>(?:(?<!\w[ \t])|(?<=[A-Z][ \t])|(?<=(?i:header)[ \t])|(?<=(?i:headers)[ \t]))\b(?i:(?:Set-)?Cookie2?)\\?[\"']?[ \t]{0,8}[:=][ \t]{0,8}\\?[\"']?)"
    r"(?=[^\s;=,\"']{1,256}=)(?:(?<=\\\")[^\"\\\n]+|(?<=\")(?:\\.|[^\"\\\n])+|(?<=')(?:\\.|[^'\\\n])+"
    r"|(?<![\"'])[^\s;=,\"']{1,256}=(?:\"[^\"\n]*\"|(?:[^\s;,\"'\\]|\\(?![\"']))*)(?![^\s;\"'\\])"
    r"(?:;[ \t]{0,4}(?:(?i:expires)=[^\n;\"']*|[^\s;=,\"']{1,256}=(?:\"[^\"\n]*\"|[^\s;\"']*)|(?i:HttpOnly|Secure|Partitioned)\b))*)",
)
"""A cookie's header, by itself or as the entry of a table: pairs of name and value up to the end of the pairs or of the quoted text."""
_COOKIES = re.compile(
    r"(?P<name>\bcookies[\"']?[ \t]{0,4}[=:][ \t]{0,4}\{)(?=[^{}\n]{0,256}[\"'][ \t]{0,4}:[ \t]{0,4}[\"'])[^{}\n]+",
    re.IGNORECASE,
)
_COOKIE_OPTION = re.compile(
    r"(?P<name>\bcurl(?:[ \t]{1,8}(?!-b|--cookie)[^\s;|&]{1,256}){0,12}[ \t]{1,8}(?:-b|--cookie)[ \t=]{0,8})(?=[\"']?[^\s;=\"']{1,256}=)"
    r"(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s\"']+)"
)
"""To curl, a value without a sign of assignment is the name of a file."""

_FOREIGN = (
    "kennwort", "wachtwoord", "contraseña", "contrasena", "senha", "lösenord", "пароль", "密码", "密碼", "口令", "パスワード", "비밀번호",
)  # fmt: skip
"""What other languages call a password, as a word by itself."""
_CANDIDATE = re.compile(
    rf"(?P<word>{literals.any_of(('pass', 'pw', 'secret', 'cred', 'key', 'token', *_FOREIGN))})"
    r"(?P<rest>[\w.-]{0,64}?)\\?[\"'`]?[ \t]{0,4}[\])]?"
    r"(?P<separator>[ \t]{0,8}(?::[ \t]{0,4}(?:str|bytes|SecretStr|Optional\[str\]|str ?\| ?None)[ \t]{0,4}=|:=|=>|={1,2}|:(?![:/])|：)[ \t]{0,8}|[ \t]{1,8}(?![-=:|]))",
    re.IGNORECASE,
)
"""The end of a name, from a word on that may make it a secret's, up to the value. A blank separates the options of a command, and the words of a sentence."""
_SET = re.compile(
    r"(?P<name>\b(?:setenv|putenv|setdefault)[( ][ \t]{0,4}[\"']?(?P<variable>[A-Za-z_]\w{0,64})[\"']?[ \t,]{1,8})(?P<value>\"[^\"\n]*\"?|'[^'\n]*'?|[^\s)]+)"
)
"""The commands and functions that set a variable without a sign of assignment."""
_VALUE = re.compile(
    r"(?P<quoted>[bfru]{0,2}(?:\\\"[^\"\\\n]*(?:\\\")?|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)[^\s,;)\]}\"'\\]*)|\S+",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"(?:\*{3}|None|null|nil|true|false|undefined|YES|NO|yes|no|\"\"|''|\$\{?[A-Z_][A-Z0-9_]{0,64}\}?|<[\w |/-]{1,32}>)(?=[\s,;&)\]}\"'\\]|$)"
)
"""Values that are no secret: none, a shell's variable, a place for one, and our own mask."""
_RANDOM = re.compile(r"(?=[\"']?[A-Z]{0,40}\d)(?=[\"']?\d{0,40}[A-Z])[\"']?[A-Z0-9]{20}", re.IGNORECASE)
"""The beginning of a value that nobody chose: long, of letters and digits alone."""
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAME_CHARS = 80
_LOOKED_AT = 256
"""Characters of a value that tell whether it is a secret; the whole is read only where it is one."""
_PATH = re.compile(r"[\"']?[/~.]")
_FEW_DIGITS = re.compile(r"[\"']?[\d.,_]{1,7}[kMGT%]?[\"']?(?=[\s,;)\]}]|$)")
_CALL = re.compile(r"[A-Za-z_][\w.]{0,64}[(\[]")
"""The beginning of an expression in a line of code."""
_WORDS_OF_PROSE = re.compile(r"[A-Za-z][a-z]{1,32}[ \t][a-z]{2,32}(?![^\s.,;])")
"""Of credentials behind a colon: the reason of an error."""
_HAS_DIGIT = re.compile(r"(?=[\"']?[\w./+=-]{0,64}\d)[\"']?[\w./+=-]{8}")

_SECRETS = (
    "password", "passwd", "passwort", "kennwort", "passphrase", "passcode", "secret", "pwd", "credential", "credentials", "creds", "apikey", "authkey",
    "accesskey", "secretkey", "privatekey", "apitoken", "authtoken", "accesstoken", "dbpass", "sshpass", "userpass",
)  # fmt: skip
"""Ends of words that name a secret whatever stands beside them."""
_ABOUT_ONE = frozenset((
    "error", "exception", "warning", "file", "path", "dir", "directory", "name", "names", "url", "uri", "len", "length", "size", "count",
    "type", "id", "ids", "policy", "prompt",
))  # fmt: skip
"""Last words of a name that stands for something about a secret."""
_KEYS_OF = frozenset((
    "access", "account", "admin", "anthropic", "api", "app", "application", "auth", "aws", "azure", "client", "comet", "consumer",
    "database", "db", "deploy", "deployment", "encryption", "enc", "gcp", "google", "hf", "kaggle", "licence", "license", "master",
    "openai", "priv", "private", "rsa", "secret", "service", "session", "sign", "signing", "ssh", "storage", "subscription", "wandb",
    "webhook",
))  # fmt: skip
"""Words that make a key a secret one; most keys are those of a dictionary or a table."""
_OTHER_KEYS_OF = frozenset((
    "cache", "dict", "foreign", "host", "index", "partition", "primary", "pub", "public", "registry", "shard", "sort", "unique",
))  # fmt: skip
_TOKENS_OF_TEXT = frozenset((
    "added", "assistant", "audio", "avg", "batch", "begin", "boi", "bonus", "bos", "cache", "cached", "cls", "completion", "context",
    "cost", "decode", "draft", "end", "eoi", "eos", "first", "fim", "generated", "image", "img", "input", "kv", "last", "latency", "mask",
    "masked", "max", "min", "ms", "n", "new", "next", "num", "number", "output", "pad", "per", "placeholder", "prefill", "prev",
    "previous", "prompt", "reasoning", "response", "role", "sec", "second", "sep", "source", "special", "start", "stop", "sub", "system",
    "target", "text", "think", "time", "tool", "total", "tps", "unk", "unexpected", "video", "vocab", "word",
))  # fmt: skip
"""Words that make a token one of a language model's text."""
_STAGES = frozenset((
    "prod", "production", "dev", "test", "staging", "old", "new",
))  # fmt: skip


_SIGNS = (
    "pass", "pw", "secret", "cred", "key", "token", "sig", "amz", "authoriz", "bearer", "basic", "curl", "wget", "login", "mysql", "mariadb", "-----", "-u ", "--user", "sqlplus", "expdp", "impdp", "sqlldr", "rman",
    "://", ":\\/\\/", "cookie", *_FOREIGN, *secret_forms.SIGNS,
)  # fmt: skip
"""One of these, in small letters, is in every text that a pattern here changes, but for a line of a PEM key: most text has none."""
_ANY_SIGN = re.compile(literals.any_of(_SIGNS))


def masked(text: str) -> str:
    """`text` with MASK in place of each secret. What is no secret stays to the letter; a second time changes nothing."""
    small = text.lower()
    if not _ANY_SIGN.search(small) and not _PEM_LINE.search(text):
        return text
    return _masked(text)


def _masked(text: str) -> str:
    if "-----" in text or _PEM_LINE.search(text):
        text = _PEM.sub(_of_pem, _PEM_LINE.sub(MASK, _PEM_END.sub(MASK, text)))
    users = [_USER, _COOKIE_OPTION] if any(client in text for client in _CLIENTS) else []
    text = _IN_URL.sub(f"{MASK}@", text)
    for pattern in (_IN_QUERY, _HEADER, _COOKIE, _COOKIES, _BEARER, _BASIC, *users, _USER_OF_ANY, _ORACLE):
        text = pattern.sub(rf"\g<name>{MASK}", text)
    for pattern in (_WANDB_LOGIN, _OPTION_P):
        text = pattern.sub(_of_command, text)
    text = _SET.sub(_of_set, text)
    return _without_named(secret_forms.masked(text, MASK))


def _of_pem(found: re.Match[str]) -> str:
    return f"{found['head']}{MASK}{found['tail'] or ''}"


def _of_command(found: re.Match[str]) -> str:
    return found[0] if _NO_SECRET.match(found["value"]) else f"{found['name']}{MASK}"


def _of_set(found: re.Match[str]) -> str:
    value = found["value"]
    is_kept = (
        value.startswith(MASK) or _NO_SECRET.match(value) or not _is_secret(found["variable"], value, "=")
    )
    return found[0] if is_kept else f"{found['name']}{MASK}"


def _without_named(text: str) -> str:
    """`text` without the values of names that are those of secrets."""
    kept: list[str] = []
    at = done = 0
    while (found := _CANDIDATE.search(text, at)) is not None:
        at = found.end()
        begin = _begin_of_name(text, found.start())
        name = text[begin : found.end("rest")]
        separator = found["separator"].strip()
        if not separator and not name.startswith("--"):
            span = secrets_in_prose.value_at(text, begin, at, name)
        else:
            span = _span_of_secret(text, begin, at, name, separator)
        if span is not None:
            kept += [text[done : span[0]], MASK]
            at = done = span[1]
        elif not separator:
            at = found.end("rest")
    return "".join([*kept, text[done:]])


def _begin_of_name(text: str, at: int) -> int:
    """Where the name begins that has the character at `at`."""
    least = max(0, at - _NAME_CHARS)
    while at > least and (text[at - 1].isalnum() or text[at - 1] in "_.-"):
        at -= 1
    return at


def _span_of_secret(text: str, begin: int, at: int, name: str, separator: str) -> tuple[int, int] | None:
    """Begin and end of the value at `at`, if that is a secret by its name; else None."""
    value = text[at : at + _LOOKED_AT]
    if not value.strip() or _NO_SECRET.match(value):
        return None
    if secrets_in_prose.joined(text, begin, name):
        return secrets_in_prose.value_at(text, begin, at, name, linked=True)
    if not _is_secret(name, value, separator):
        return None
    found = _VALUE.match(text, at)
    return found.span() if found is not None else None


def _is_secret(name: str, value: str, separator: str) -> bool:
    """Whether the value of the name is a secret: always, never, or if it looks like one."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and (digits.is_number(words[-1]) or (words[-1] in _STAGES and len(words) > 1)):
        words.pop()
    if name.lower().endswith(_FOREIGN) and not name.isascii():
        return True
    if not words or (words[-1] in _ABOUT_ONE and words[-2:] != ["secret", "id"]):
        return False
    if words[-1].startswith("cred") and separator == ":" and _WORDS_OF_PROSE.match(value):
        return False
    if words[-1] in _FOREIGN or words[-1] == "passe":
        return True
    if words[-1] == "pw":
        if _PATH.match(value) or _FEW_DIGITS.match(value) or _CALL.match(value):
            return False
        return _any_of(words, secrets_in_prose.PASSES_OF) or secrets_in_prose.looks_chosen(value)
    if any(word.endswith(_SECRETS) for word in words):
        return not (words[-1].endswith("pwd") and _PATH.match(value))
    is_variable = len(words) > 1 and name.isupper()
    if words[-1] == "pass":
        return is_variable or _any_of(words, secrets_in_prose.PASSES_OF)
    if words[-1] == "token":
        return _is_secret_token(words, value, separator)
    if "key" in words and (_any_of(words, _KEYS_OF) or (is_variable and not _any_of(words, _OTHER_KEYS_OF))):
        return True
    return words[-1] == "key" and _RANDOM.match(value) is not None


def _is_secret_token(words: list[str], value: str, separator: str) -> bool:
    """A token of a parser or a language model is none: `Unexpected token: else`, `pad_token = '<pad>'`."""
    if _any_of(words, _TOKENS_OF_TEXT):
        return _RANDOM.match(value) is not None
    if len(words) > 1:
        return True
    if _FEW_DIGITS.match(value) or _CALL.match(value):
        return False
    return separator != ":" or _HAS_DIGIT.match(value) is not None


def _any_of(words: list[str], chosen: Collection[str]) -> bool:
    return any(word in chosen for word in words)
