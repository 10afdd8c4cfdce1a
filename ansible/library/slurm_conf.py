#!/usr/bin/python
"""Ansible module: puts our settings into a site's slurm.conf, and takes them out again to the byte.

What the site wrote stays in the file as a comment beside what we put in its place:

    #probing-cluster# HealthCheckProgram=/usr/sbin/nhc
    HealthCheckProgram=/usr/lib/probing-cluster/slurm/healthcheck #probing-cluster

so whoever reads slurm.conf sees both, a second run finds nothing to do, and undoing needs no backup that
may be older than the site's latest edit. Runs on the target's Python, 3.9 and later, standard library only.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

DOCUMENTATION = """
module: slurm_conf
short_description: Our settings in a site's slurm.conf, removable to the byte
options:
  path: {description: The site's slurm.conf., type: path, required: true}
  state: {description: query reads only., choices: [present, absent, query], default: present, type: str}
  set: {description: Key to value; the site's own line, a full path, stays as a comment., type: dict, default: {}}
  default: {description: Key to value, only where the site says nothing., type: dict, default: {}}
  words: {description: Key to a word of its comma-separated list, added unless it or one of its alternatives is there., type: dict, default: {}}
  lines: {description: Whole lines for the end of the file (plugstack.conf)., type: list, elements: str, default: []}
  alternatives: {description: Key to words that do as well., type: dict, default: {}}
"""
EXAMPLES = """
- slurm_conf:
    path: /etc/slurm/slurm.conf
    set: {HealthCheckProgram: /usr/lib/probing-cluster/slurm/healthcheck}
    default: {HealthCheckInterval: 300}
    words: {SchedulerParameters: nohold_on_prolog_fail}
"""
RETURN = """
site: {description: Key to the site's own values, as if we were not there., type: dict, returned: always}
files: {description: The files that were changed., type: list, returned: always}
"""

SAVED = "#probing-cluster# "
OURS = " #probing-cluster"
NEXT = "#probing-cluster: the next line"
MADE = "#probing-cluster: this file"
_KEY = re.compile(r"\s*([A-Za-z_]+)\s*=\s*(.*)", re.DOTALL)
_ANOTHER = re.compile(r"\s([A-Za-z_]+)\s*=")
_INCLUDE = re.compile(r"\s*include\s+(\S+)", re.IGNORECASE)


class Unclear(Exception):
    """The file says something that must not be guessed at."""


def site_text(text: str) -> str:
    """The file as the site wrote it: our lines gone, its own back."""
    lines = text.split("\n")
    ours = {n for n, line in enumerate(lines) if line.endswith(OURS) or line == MADE}
    ours |= {n + more for n, line in enumerate(lines) if line == NEXT for more in (0, 1)}
    kept = [line for n, line in enumerate(lines) if n not in ours]
    return "\n".join(line.removeprefix(SAVED) for line in kept)


def statements(text: str) -> list[tuple[int, int, str, str]]:
    """(first line, one past the last, key in lower case, value) of every `Key=value` line; continuations are joined."""
    lines = text.split("\n")
    found = []
    start = 0
    while start < len(lines):
        end, joined = start + 1, _bare(lines[start])
        while joined.endswith("\\") and end < len(lines):
            joined, end = joined[:-1] + _bare(lines[end]), end + 1
        match = _KEY.fullmatch(joined)
        if match:
            found.append((start, end, match[1].lower(), match[2].strip()))
        start = end
    return found


def values(text: str, key: str) -> list[str]:
    """What the file says of `key`, in order; raises Unclear where it shares a line with another."""
    own = []
    for start, _, name, value in statements(text):
        if name == key.lower():
            if another := _ANOTHER.search(value):
                msg = f"line {start + 1}: {another[1]} stands behind {key}; give each a line of its own"
                raise Unclear(msg)
            own.append(value.strip('"'))
        elif name not in ("nodename", "partitionname") and re.search(rf"\s{key}\s*=", value, re.IGNORECASE):
            raise Unclear(f"line {start + 1}: {key} stands behind another setting; give it a line of its own")
    return own


def replaced(text: str, key: str, value: str) -> str:
    """The text with every line of `key` kept as a comment and ours in the last one's place, or at the end."""
    lines = text.split("\n")
    spans = [(start, end) for start, end, name, _ in statements(text) if name == key.lower()]
    for number, (start, end) in enumerate(reversed(spans)):
        kept = [SAVED + line for line in lines[start:end]]
        lines[start:end] = [*kept, _line(key, value)] if number == 0 else kept
    if not spans:
        lines.insert(_end(lines), _line(key, value))
    return "\n".join(lines)


def _end(lines: list[str]) -> int:
    at = len(lines) - (lines[-1] == "")
    if at and _bare(lines[at - 1]).endswith("\\"):
        raise Unclear("its last line goes on (\\) and nothing follows")
    return at


def appended(text: str, whole: list[str]) -> str:
    """The text with whole lines of ours at its end."""
    lines = text.split("\n")
    at = _end(lines)
    lines[at:at] = [each for line in whole for each in (NEXT, line)]
    return "\n".join(lines)


def with_word(found: list[str], word: str, alternatives: list[str]) -> str | None:
    """The list with `word` at its end; None when it, or what does as well, is there."""
    have = [part.strip() for part in (found[-1] if found else "").split(",") if part.strip()]
    wanted = {name.lower() for name in (word, *alternatives)}
    if wanted & {part.lower() for part in have}:
        return None
    return ",".join([*have, word])


def edit(files: dict[str, str], main: str, wanted: dict) -> tuple[dict[str, str], dict[str, list[str]]]:
    """New text of every file, and the site's own values of every key of `wanted`.

    A key is changed in every file where the site says it; what the site does not say goes into `main`.
    """
    new = {path: site_text(text) for path, text in files.items()}
    named = [key for part in ("set", "default", "words") for key in wanted[part]]
    site = {key: [v for text in new.values() for v in values(text, key)] for key in named}
    for key in wanted["set"]:
        _require_full_paths(key, site[key])
    changes = dict(wanted["set"])
    changes.update({key: value for key, value in wanted["default"].items() if not site[key]})
    for key, word in wanted["words"].items():
        value = with_word(site[key], word, wanted["alternatives"].get(key, []))
        if value is not None:
            changes[key] = value
    for key, value in changes.items():
        places = [path for path, text in new.items() if values(text, key)]
        for path in places or [main]:
            new[path] = replaced(new[path], key, str(value))
    new[main] = appended(new[main], wanted["lines"])
    if files[main].startswith(MADE):
        new[main] = MADE + "\n" + new[main]
    return new, site


def _require_full_paths(key: str, programs: list[str]) -> None:
    """Slurm itself brings a program without a full path to configless nodes, and only while slurm.conf names it."""
    for program in programs:
        if program and not program.startswith("/"):
            msg = f"{key}={program} is no full path, so ours could not run it first; put it on every node and give its full path"
            raise Unclear(msg)


def included(path: Path) -> list[Path]:
    """The file and those it includes, in reading order; raises OSError."""
    found = [path]
    for line in _read(path).split("\n"):
        match = _INCLUDE.match(_bare(line))
        if match and "%" not in match[1]:
            where = Path(match[1]) if match[1].startswith("/") else path.parent / match[1]
            for name in sorted(where.parent.glob(where.name)):
                found += included(name)
    return found


def _bare(line: str) -> str:
    return re.sub(r"(?<!\\)#.*", "", line).rstrip()


def _line(key: str, value: str) -> str:
    return f"{key}={value}{OURS}"


def _read(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as opened:
        return opened.read()


def _write(path: Path, text: str) -> None:
    """In one step, with the owner and mode of the file that was there."""
    path = path.resolve()
    status = path.stat() if path.exists() else None
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".probing-")
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as opened:
        opened.write(text)
        opened.flush()
        if status is not None:
            os.fchown(opened.fileno(), status.st_uid, status.st_gid)
        os.fchmod(opened.fileno(), status.st_mode & 0o7777 if status else 0o644)
        os.fsync(opened.fileno())
    Path(name).replace(path)


def main() -> None:
    from ansible.module_utils.basic import AnsibleModule

    parts = ("set", "default", "words", "alternatives")
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"choices": ["present", "absent", "query"], "default": "present"},
            "lines": {"type": "list", "elements": "str", "default": []},
            **{part: {"type": "dict", "default": {}} for part in parts},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    main_path = Path(parameters["path"])
    try:
        old = {str(path): _read(path) for path in included(main_path)}
        if parameters["state"] == "present" and not main_path.exists():
            old[str(main_path)] = MADE + "\n"
        if parameters["state"] == "absent":  # must work whatever the site has written since
            new, site = {path: site_text(text) for path, text in old.items()}, {}
        else:
            new, site = edit(old, str(main_path), {part: parameters[part] for part in (*parts, "lines")})
        if parameters["state"] == "query":
            new = old
        changed = [path for path in old if new[path] != old[path]]
        if not module.check_mode:
            for path in changed:
                if old[path].startswith(MADE) and not new[path]:
                    Path(path).unlink()
                else:
                    _write(Path(path), new[path])
    except (OSError, Unclear) as exc:
        module.fail_json(msg=f"{parameters['path']}: {exc}")
    diff = [{"before_header": p, "after_header": p, "before": old[p], "after": new[p]} for p in changed]
    module.exit_json(changed=bool(changed), files=changed, site=site, diff=diff)


if __name__ == "__main__":
    main()
