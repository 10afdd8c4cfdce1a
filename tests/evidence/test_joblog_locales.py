"""Words of the C library and of bash in other languages are read as their own in English."""

from __future__ import annotations

from probing_cluster.evidence import classify, locales, message_catalogues
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

KINDS = {
    "No space left on device": "disk_full",
    "Disk quota exceeded": "disk_full",
    "Input/output error": "io_error",
    "Read-only file system": "io_error",
    "Stale file handle": "stale_file_handle",
    "Transport endpoint is not connected": "filesystem_unreachable",
    "Cannot allocate memory": "host_memory_error",
}
SIGNALS = {
    "Killed": "oom_kill_suspected",
    "Segmentation fault": "segfault",
    "Bus error": "bus_error",
    "Terminated": "process_terminated",
    "File size limit exceeded": "process_crashed",
    "CPU time limit exceeded": "process_crashed",
}
TRANSLATED = [
    (word, KINDS[english])
    for english, words in message_catalogues.ERRORS.items()
    if english in KINDS
    for word in words
]
DIED = [
    (word, SIGNALS[english])
    for english, words in message_catalogues.SIGNALS.items()
    if english in SIGNALS
    for word in words
]


def first(*lines: str) -> list[str]:
    return [f.kind for f in reader.read(lines) if f.first_cause]


def test_an_error_of_the_system_is_understood_in_any_language() -> None:
    """As tools print it, behind a colon; the message stays as it was printed."""
    wrong = []
    for word, kind in TRANSLATED:
        found = [f for f in reader.read([f"dd: '/scratch/x': {word}"]) if f.first_cause]
        kinds = (first(f"cp: '/scratch/x': {word}"), [f.kind for f in found])
        if kinds != ([kind], [kind]) or word not in found[0].message:
            wrong.append((word, kind, found))
    assert wrong == []


@every("line", ["Zeile 12:", "ligne 12:", "第 12 行：", "行 12:", "строка 12:", "12. sor:"])
def test_a_child_that_died_is_understood_in_any_language(line: str) -> None:
    """As bash tells of it."""
    died = "/var/spool/slurmd/job1/slurm_script: {}  4711 {}    python train.py"
    read = [(word, kind, first(died.format(line, word))) for word, kind in DIED]
    assert [(word, found) for word, kind, found in read if found != [kind]] == []


@every("dumped", message_catalogues.DUMPED)
def test_a_core_that_was_dumped_hides_no_command(dumped: str) -> None:
    """bash leaves no blank behind a long text of a signal."""
    child = f"job.sh: Zeile 3:  4711 Die maximale Dateigröße ist überschritten({dumped}) ./solve"
    assert locales.english(child) == "job.sh: line 3: 4711 File size limit exceeded (core dumped) ./solve"
    assert first(child) == ["process_crashed"]
    assert first("start", f"Abgebrochen ({dumped})") == ["process_aborted"]


@every("english", ["Killed", "Terminated", "Aborted"])
def test_an_everyday_word_alone_on_its_line_is_no_death(english: str) -> None:
    """`Beendet` is what a German program says at its good end, `Getötet` a simulation of its figures."""
    for word in message_catalogues.SIGNALS[english]:
        if english == "Killed" and ("(" in word or word == "已杀死"):
            continue
        assert first("start", word) == []


@every(
    "line",
    [
        "job.sh: Zeile 3: foo: Kommando nicht gefunden.",
        "job.sh: ligne 3: foo : commande introuvable",
        "job.sh: línea 3: foo: orden no encontrada",
        "job.sh: 第 3 行：foo：未找到命令",
        "job.sh: строка 3: foo: команда не найдена",
    ],
)
def test_a_command_that_is_not_there_is_the_last_word(line: str) -> None:
    """And forgotten where the script goes on."""
    assert first(line) == ["command_not_found"]
    assert first(line, *(f"step {n} loss 1.{n}" for n in range(9))) == []


@every(
    "words",
    [
        "erreur lors du chargement des bibliothèques partagées: {}: ne peut ouvrir le fichier d'objet partagé: Aucun fichier ou dossier de ce type",
        "Fehler beim Laden der gemeinsam genutzten Bibliotheken: {}: Kann die Shared-Object-Datei nicht öffnen: Datei oder Verzeichnis nicht gefunden",
        "加载共享库时出错: {}: 无法打开共享对象文件: 没有那个文件或目录",
    ],
)
def test_a_library_that_the_loader_does_not_find_stays_behind_the_clean_up(words: str) -> None:
    """The loader's own words differ as well; their order does not."""
    assert first(f"./sim: {words.format('libfftw3.so.3')}", "packing", "cp: a.dat: weg", "Ende", "aufgeräumt", "2 s") == ["program_error"]  # fmt: skip
    assert first(f"./sim: {words.format('a.dat')}", *(f"step {n} loss 1.{n}" for n in range(9))) == []


@every(
    "line",
    [
        "Abandon",
        "Morto",
        "la ligne 12: 4711 Abandon? non",
        "das Gerät heißt Speicherplatz",
        "he said: 设备",
        "Terminado (killed) 3 of 4",
    ],
)
def test_a_word_out_of_its_place_says_nothing(line: str) -> None:
    """Many of these words are everyday ones."""
    assert first(line) == []


def test_the_sieve_lets_other_languages_through() -> None:
    """Whole files are read past a sieve of words."""
    text = "eins\nzwei\ncp: x: Auf dem Gerät ist kein Speicherplatz mehr verfügbar\n".encode()
    found = list(classify.classify_stream(text.splitlines(keepends=True), "joblog"))
    assert [(f["line"], f["kind"]) for f in found] == [(3, "disk_full")]


def test_the_first_cause_has_its_message_in_english() -> None:
    (found,) = reader.read(["cp: Fehler beim Schreiben von 'a': Auf dem Gerät ist kein Speicherplatz mehr verfügbar"])  # fmt: skip
    assert str(found.detail["english"]).endswith("No space left on device")
    (plain,) = reader.read(["cp: error writing 'a': No space left on device"])
    assert "english" not in plain.detail


ENGLISH_OF_SHELL = [(word, english) for english, words in message_catalogues.SHELL.items() for word in words]


def test_what_bash_says_of_a_script_is_understood_in_any_language() -> None:
    """It is the last word of a script that it ends, and where work follows as much as its English form."""
    work = [f"step {n} loss 1.{n}" for n in range(9)]
    wrong = []
    for word, english in ENGLISH_OF_SHELL:
        named = tuple(["WORLD"] * word.count("%s"))
        line, same = (
            f"/w/train.sbatch: Zeile 14: {word % named}",
            f"/w/train.sbatch: line 14: {english % named}",
        )
        last_word = first("data check: 4 shards ok", line)
        found = (locales.english(line), last_word, first(line, *work))
        if found != (same, ["program_error"], first(same, *work)):
            wrong.append((line, found))
    assert wrong == []


@every(
    "line",
    [
        "run.sh: línea 8: X: variable sin asignar",
        "run.sh: ligne 8 : X : variable sans liaison",
        "run.sh línia 8: X: variable no definida",
        "run.sh: 8. sor: X: kötetlen változó",
        "run.sh, linha 8: X: variável não associada",
        "run.sh: 第 8 行：X: 未绑定的变量",
        "run.sh: 第 8 列：X: 未綁定的變數",
        "run.sh: 8 行: X: 未割り当ての変数です",
        "run.sh: 8. satır: X: bağlanmamış değişken",
    ],
)
def test_each_language_names_a_scripts_line_in_its_own_way(line: str) -> None:
    assert locales.english(line) == "run.sh: line 8: X: unbound variable"


def test_the_same_words_of_a_program_are_no_shells() -> None:
    for text in ("solver: Parameter alpha ist nicht gesetzt.", "la ligne 8: X : variable sans liaison"):
        assert locales.english(text) == text
