"""Translates messages of the C library, the shell and R back to English, which the families read.

The phrases are their own translations. Those of the C library count only after a colon, or in a shell's message about a child.
"""

from __future__ import annotations

import re

from probing_cluster.core import sanitize
from probing_cluster.core.sanitize import literals
from probing_cluster.evidence import message_catalogues as catalogues

_ENGLISH = {
    word: english
    for table in (catalogues.ERRORS, catalogues.SIGNALS)
    for english, words in table.items()
    for word in words
}
_OF_R = (*catalogues.R_CALLS, *catalogues.R_BEHIND, *catalogues.R_ERRORS, *catalogues.R_HALTED)
_OF_SHELL = [word for words in catalogues.SHELL.values() for word in words]
_NAMED = "%s"
TRIGGERS = (
    *(*_ENGLISH, *catalogues.NOT_FOUND, *_OF_R),
    *(max(word.split(_NAMED), key=len).strip(" :：.\"'`«»„“”「」") for word in _OF_SHELL),
)
"""A line without any of these is not translated."""
_ANY = re.compile(literals.any_of(TRIGGERS))


def _either(words: tuple[str, ...] | list[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_LINE = re.compile(
    r"^(?P<shell>\S{1,200}?)(?:\s?[:：,] ?| (?=línia ))(?:(?:第 ?|Zeile |ligne |línea |línia |linea |riga |linha |regel |rad |linje |linia |wiersz |строка |рядок |řádek |satır |rivi |行 ?|줄 ?)(?P<line>\d{1,6})(?: ?[行列])?|(?P<before>\d{1,6})(?:\. (?:sor|satır)| 行))\s?[:：] ?"
)
"""A shell's name for a line of a script."""
_ERROR = re.compile(
    rf"(?P<before>(?:[:：] ?|\] ?|\())(?P<foreign>{_either([w for ws in catalogues.ERRORS.values() for w in ws])})"
)
_CHILD = re.compile(
    rf"^(?P<shell>\S{{1,200}}?)\s?[:：] .{{0,12}}?(?P<line>\d{{1,6}}).{{0,8}}?[:：] {{0,6}}(?P<pid>\d{{1,10}}) {{1,4}}(?P<foreign>{_either([w for ws in catalogues.SIGNALS.values() for w in ws])})(?!\w)"
)
_COMMAND = re.compile(
    rf"^(?P<shell>\S{{1,200}}?)\s?[:：] ?.{{0,12}}?(?P<line>\d{{1,6}}).{{0,8}}?[:：] ?(?P<name>\S{{1,200}}?)\s?[:：] ?(?:{_either(catalogues.NOT_FOUND)})\.?$"
)
_PLAIN = re.compile(
    rf"^(?P<shell>-?(?:ba|z|da|k|c|tc)?sh)[:：] ?(?P<name>\S{{1,200}}?)\s?[:：] ?(?:{_either(catalogues.NOT_FOUND)})\.?$"
)
_ALONE = [
    w
    for english in ("Segmentation fault", "Bus error", "Illegal instruction", "Floating point exception")
    for w in catalogues.SIGNALS[english]
]
_ALONE += [w for w in catalogues.SIGNALS["Killed"] if "(" in w or w == "已杀死"]
_CORE = rf"\s{{0,2}}[(（](?:core dumped|{_either(catalogues.DUMPED)})[)）] ?"
_BARE = re.compile(
    rf"^\s{{0,8}}(?:(?P<foreign>{_either(_ALONE)})(?:{_CORE})?|(?P<dumped>{_either(catalogues.SIGNALS['Aborted'])}){_CORE})$"
)
"""The same alone on its line. `Terminated` and `Aborted` are everyday words of programs, `Aborted` not before a core; so is `Killed`, but for
words that name the signal and for 已杀死."""
_LOADER = re.compile(
    r"^(?P<program>\S{1,300}?)\s?: [^:\n]{5,120}: (?P<library>[^\s:]{1,200}\.so(?:\.[\w.]{1,40})?): [^:\n]{5,160}: No such file or directory$"
)
"""The loader's message about a library that it does not find; its words are translated as well."""
_SHELL_LINE = re.compile(r"^\S{1,200}: line \d{1,6}: ")


def _form(word: str) -> str:
    """A regular expression for one of bash's messages."""
    pieces = [
        re.sub(r"(?:\\ )?[:：](?:\\ )?", r"\\s?[:：]\\s?", re.escape(piece)) for piece in word.split(_NAMED)
    ]
    return "(.{1,200}?)".join(pieces)


_SHELL = [
    (re.compile(rf"(?:{'|'.join(map(_form, words))})(?:\.?$|(?=[:：] ))"), english)
    for english, words in catalogues.SHELL.items()
]
_R_CALL = re.compile(
    rf"^\s{{0,2}}(?:(?:{_either(catalogues.R_CALLS)})(?P<call>[\w.:$`'\"(\[{{].{{0,300}}?)|(?P<before>\S.{{0,300}}?)\s?(?:{_either(catalogues.R_BEHIND)}))\s?[:：]\s?"
)
_R_ERROR = re.compile(rf"^\s?(?:{_either(catalogues.R_ERRORS)})")


def _of_r(text: str) -> str:
    """The line with R's own words in English."""
    if text.strip() in catalogues.R_HALTED:
        return "Execution halted"
    if call := _R_CALL.match(text):
        of = (call["call"] or call["before"]).strip("'")
        return f"Error in {of} : {text[call.end() :]}"
    return _R_ERROR.sub("Error: ", text)


def _of_shell(words: str) -> str:
    """What bash says of a line of its script, in English."""
    for form, template in _SHELL:
        if found := form.match(words):
            english = template % tuple(name for name in found.groups() if name is not None)
            return english + words[found.end() :]
    return words


def english(text: str) -> str:
    """The line with messages of the C library, the shell or R in English; unchanged without such a message in another language."""
    if not _ANY.search(text):
        return text
    if (translated := _of_r(text)) != text:
        return translated
    if child := _CHILD.match(text):
        behind = re.sub(f"^{_CORE}", " (core dumped) ", text[child.end() :])
        return f"{child['shell']}: line {child['line']}: {child['pid']} {_ENGLISH[child['foreign']]}{behind}"
    if text.rstrip().removesuffix(".").endswith(catalogues.NOT_FOUND):
        if command := _COMMAND.match(text.rstrip()):
            return f"{command['shell']}: line {command['line']}: {command['name']}: command not found"
        if plain := _PLAIN.match(text.rstrip()):
            return f"{plain['shell']}: {plain['name']}: command not found"
    if bare := _BARE.match(text.rstrip()):
        return _ENGLISH[bare["foreign"] or bare["dumped"]]
    text = _LINE.sub(lambda at: f"{at['shell']}: line {at['line'] or at['before']}: ", text)
    if at := _SHELL_LINE.match(text):
        text = text[: at.end()] + _of_shell(text[at.end() :])
    text = _ERROR.sub(lambda found: found["before"] + _ENGLISH[found["foreign"]], text)
    if loader := _LOADER.match(text):
        return f"{loader['program']}: error while loading shared libraries: {loader['library']}: cannot open shared object file: No such file or directory"
    return text


def translation(message: str) -> dict[str, str]:
    """The field with the English form of a message in another language; none of an English one."""
    words = english(message)
    return {} if words == message else {"english": sanitize.clean(words, 1024)}
