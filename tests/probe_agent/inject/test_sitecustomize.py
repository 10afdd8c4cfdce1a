"""The way in does no harm: silent, chained, absent where it must be."""

import ast
import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from probing_cluster.probe_agent import inject
from probing_cluster.probe_agent.ranks import pages as probe_pages

SITE = inject.SITE_DIRECTORY

FAKE_TORCH = {
    "torch/__init__.py": "from torch import optim\nimport os\nseen = dict(os.environ)\n",
    "torch/version.py": "__version__ = '2.9.1+fake'\n",
    "torch/optim/__init__.py": "",
}


def run(
    tmp_path: Path, code: str, *flags: str, python: Path | str = sys.executable, **env: str
) -> subprocess.CompletedProcess[str]:
    """A job step's interpreter, with our directory in front and a page directory made by root."""
    pages = tmp_path / "pages"
    pages.mkdir(exist_ok=True)
    merged = {
        "PATH": os.environ["PATH"],
        "PROBING_PAGE_DIR": str(pages),
        "PYTHONPATH": os.pathsep.join([str(SITE), str(tmp_path)]),
        **env,
    }
    argv = [str(python), *flags, "-c", code]
    return subprocess.run(argv, env=merged, capture_output=True, text=True, timeout=60, check=False)


def fake_torch(tmp_path: Path) -> None:
    """A torch that records what it saw when it loaded."""
    for name, text in FAKE_TORCH.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_directory_holds_exactly_two_things() -> None:
    """Anything else there would shadow a user's module."""
    assert {p.name for p in SITE.iterdir() if p.name != "__pycache__"} == {
        "sitecustomize.py",
        "_probing_probe",
    }


def test_nothing_is_said_or_opened_without_torch(tmp_path: Path) -> None:
    """A program without torch has no page and no output of ours."""
    done = run(tmp_path, "print('mine')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")
    assert list((tmp_path / "pages").iterdir()) == []


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    """Ours shadows theirs on the path, so ours runs theirs, under its own name."""
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = __name__, __file__\n")
    done = run(tmp_path, "import sitecustomize; print(theirs, sitecustomize.__file__)")
    assert done.stderr == ""
    assert done.stdout == f"('sitecustomize', '{tmp_path}/sitecustomize.py') {tmp_path}/sitecustomize.py\n"


def test_a_users_sitecustomize_that_is_a_package(tmp_path: Path) -> None:
    """What it imports from itself is found, as without us. A directory without code hides no file further on."""
    package = tmp_path / "sitecustomize"
    package.mkdir()
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "sitecustomize.py").write_text("print('later')\n")
    path = os.pathsep.join([str(SITE), str(tmp_path), str(tmp_path / "later")])
    assert run(tmp_path, "print('ran')", PYTHONPATH=path).stdout == "later\nran\n"
    (package / "__init__.py").write_text("from . import helper\n")
    (package / "helper.py").write_text("print(__name__)\n")
    done = run(tmp_path, "print('ran')", PYTHONPATH=path)
    assert (done.stdout, done.stderr) == ("sitecustomize.helper\nran\n", "")


CHAINS = """
import importlib.util, os, sys
print("tool")
here = os.path.dirname(__file__)
spec = sys.meta_path[-1].find_spec("sitecustomize", [p for p in sys.path if p != here])
if spec is not None: spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""


@pytest.mark.parametrize(
    "order", [("one", "two", ""), ("one", "tool", ""), ("tool", "one", "two", ""), ("one", "two")]
)
def test_of_several_that_run_each_other_each_runs_once(tmp_path: Path, order: tuple[str, ...]) -> None:
    """A job inherits the path of one that began before the probe's directory changed; and tools chain as we do."""
    fake_torch(tmp_path)
    for name in ("one", "two"):
        shutil.copytree(SITE, tmp_path / name)
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "sitecustomize.py").write_text(CHAINS)
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    (tmp_path / "bare").mkdir()
    path = os.pathsep.join([*(str(tmp_path / name) for name in order), str(tmp_path / "bare")])
    done = run(tmp_path, "print('ran')", PYTHONPATH=path)
    tool = ["tool"] if "tool" in order else []
    assert done.stderr == ""
    assert done.stdout.split() == [*tool, *(["theirs"] if "" in order else []), "ran"]


def test_a_broken_users_sitecustomize_behaves_as_without_us(tmp_path: Path) -> None:
    """Its exception is reported by Python as ever, and the program still runs."""
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    done = run(tmp_path, "print('ran')")
    alone = run(tmp_path, "print('ran')", PYTHONPATH=str(tmp_path))
    assert done.stdout == alone.stdout == "ran\n"
    assert "ValueError: theirs" in done.stderr
    assert "ValueError: theirs" in alone.stderr
    assert done.returncode == alone.returncode


@pytest.mark.parametrize("flags", [("-I",), ("-S",), ("-E",)])
def test_isolated_interpreters_are_left_alone(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """-I, -S and -E lose our path or our file: absent, not broken."""
    done = run(tmp_path, "import sys; print('_probing_probe.importhook' in sys.modules)", *flags)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_in_a_virtual_environment_with_a_sitecustomize_of_its_own(tmp_path: Path) -> None:
    """As in any prefix (conda's): torch is found there, its page is opened, and the prefix's sitecustomize runs."""
    venv.create(tmp_path / "env", symlinks=True)
    (site,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    fake_torch(site)
    (site / "sitecustomize.py").write_text("print('theirs')\n")
    env = {"PYTHONPATH": str(SITE)}
    done = run(
        tmp_path, "import torch; print(torch.__file__)", python=tmp_path / "env" / "bin" / "python", **env
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"theirs\n{site / 'torch' / '__init__.py'}\n"
    assert [p.suffix for p in (tmp_path / "pages").iterdir()] == [".page"]


def test_in_a_prefix_that_was_moved(tmp_path: Path) -> None:
    """What conda, and a standalone Python of uv's, are: a whole installation elsewhere, with packages and a sitecustomize of its own."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    base, prefix = Path(sys.base_prefix), tmp_path / "prefix"
    library = base / "lib" / version
    if not library.is_dir() or base == Path("/usr"):
        pytest.skip("needs an interpreter in a prefix of its own, not the system's")
    unused = shutil.ignore_patterns(
        "test", "site-packages", "idlelib", "tkinter", "ensurepip", "config-*", "__pycache__"
    )
    shutil.copytree(library, prefix / "lib" / version, symlinks=True, ignore=unused)
    for shared in (base / "lib").glob("libpython*.so*"):
        shutil.copy2(shared, prefix / "lib", follow_symlinks=False)
    (prefix / "bin").mkdir()
    python = shutil.copy2((base / "bin" / version).resolve(), prefix / "bin" / version)
    site = prefix / "lib" / version / "site-packages"
    fake_torch(site)
    (site / "sitecustomize.py").write_text("print('theirs')\n")
    done = run(
        tmp_path,
        "import sys, torch; print(sys.prefix, torch.__file__)",
        python=python,
        PYTHONPATH=str(SITE),
        LD_LIBRARY_PATH=str(prefix / "lib"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"theirs\n{prefix} {site / 'torch' / '__init__.py'}\n"
    assert [p.suffix for p in (tmp_path / "pages").iterdir()] == [".page"]


def test_flight_recorder_switches_follow_the_torch_that_is_there(tmp_path: Path) -> None:
    """From 2.8 on the new names, set before torch loads, dumps going to the job's page directory."""
    fake_torch(tmp_path)
    done = run(tmp_path, "import torch, json; print(json.dumps(torch.seen))")
    printed = json.loads(done.stdout)
    assert printed["TORCH_FR_BUFFER_SIZE"] == "2000"
    assert printed["TORCH_FR_DUMP_TEMP_FILE"] == str(tmp_path / "pages" / "fr_rank_")
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in printed
    assert done.stderr == ""


def test_old_torch_gets_old_names(tmp_path: Path) -> None:
    """Before 2.8 only the old names mean anything."""
    fake_torch(tmp_path)
    (tmp_path / "torch/version.py").write_text("__version__ = '2.5.1'\n")
    printed = json.loads(run(tmp_path, "import torch, json; print(json.dumps(torch.seen))").stdout)
    assert printed["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"
    assert "TORCH_FR_BUFFER_SIZE" not in printed


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"])
def test_the_users_choice_stands(tmp_path: Path, name: str) -> None:
    """A switch the user set, under either name, is never touched or doubled."""
    fake_torch(tmp_path)
    printed = json.loads(
        run(tmp_path, "import torch, json; print(json.dumps(torch.seen))", **{name: "7"}).stdout
    )
    both = {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}
    assert {k: v for k, v in printed.items() if k in both} == {name: "7"}


@pytest.mark.parametrize("name", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
def test_what_another_job_was_given_is_no_choice(tmp_path: Path, name: str) -> None:
    """A training that submits its successor passes its variables on, and what it was given by us among them. A place of the user's stands."""
    fake_torch(tmp_path)
    pages = tmp_path / "102"
    pages.mkdir()
    code = "import torch, json; print(json.dumps({k: v for k, v in torch.seen.items() if k.endswith('TEMP_FILE')}))"
    for given, kept in (
        ("101/fr_rank_", False),
        ("102/fr_rank_", False),
        ("101/mine_", True),
        ("mine/fr_rank_", True),
        ("101/more/fr_rank_", True),
    ):
        done = run(tmp_path, code, PROBING_PAGE_DIR=str(pages), **{name: f"{tmp_path}/{given}"})
        expected = {name: f"{tmp_path}/{given}"} if kept else {"TORCH_FR_DUMP_TEMP_FILE": f"{pages}/fr_rank_"}
        assert json.loads(done.stdout) == expected


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ({"PROBING": "live"}, True),
        ({"PROBING_DEFAULT": "live"}, True),
        ({"PROBING": "on", "PROBING_DEFAULT": "live"}, False),
        ({"PROBING_DEFAULT": "on"}, False),
    ],
)
def test_who_answers_its_owner(tmp_path: Path, words: dict[str, str], *, answers: bool) -> None:
    """A live job; the user's word comes before the site's."""
    fake_torch(tmp_path)
    done = run(tmp_path, "import torch, sys; print('_probing_probe.responder' in sys.modules)", **words)
    assert (done.stdout, done.stderr) == (f"{answers}\n", "")


def test_the_module_keeps_its_own_loader(tmp_path: Path) -> None:
    """inspect and importlib.resources find torch as if nothing had happened."""
    fake_torch(tmp_path)
    done = run(
        tmp_path,
        "import torch, inspect; print(type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__)",
    )
    assert done.stdout == "SourceFileLoader True\n"


def test_an_import_error_of_torch_is_the_users_to_see(tmp_path: Path) -> None:
    """A torch that fails to import fails as it always did."""
    fake_torch(tmp_path)
    (tmp_path / "torch/__init__.py").write_text("raise ImportError('libcudart.so.12')\n")
    done = run(tmp_path, "import torch")
    assert "ImportError: libcudart.so.12" in done.stderr
    assert "_probing_probe" not in done.stderr.splitlines()[-1]
    assert done.returncode == 1


def phases(tmp_path: Path) -> list[str]:
    """The phases of all pages there are, by their names."""
    return [probe_pages.parse(p.read_bytes()).phase for p in sorted((tmp_path / "pages").glob("*.page"))]


def test_who_only_looks_whether_torch_is_there_is_no_rank(tmp_path: Path) -> None:
    """Many packages ask so when they are imported, in programs that never use torch: no page, no variable; the module loads later all the same."""
    fake_torch(tmp_path)
    code = """
import importlib.util, os, sys
spec = importlib.util.find_spec("torch")
print(os.path.basename(os.path.dirname(spec.origin)), "torch" in sys.modules)
print(os.listdir(os.environ["PROBING_PAGE_DIR"]), [n for n in os.environ if n.startswith("TORCH")])
module = importlib.util.module_from_spec(spec)
sys.modules["torch"] = module
spec.loader.exec_module(module)
print(len(os.listdir(os.environ["PROBING_PAGE_DIR"])), module.seen["TORCH_FR_BUFFER_SIZE"])
"""
    done = run(tmp_path, code)
    assert (done.stdout, done.stderr) == ("torch False\n[] []\n1 2000\n", "")


def test_a_program_that_goes_on_without_a_broken_torch_is_no_rank(tmp_path: Path) -> None:
    """Its page says that it has ended, so that it neither stalls nor dies; another try that succeeds is a rank's."""
    fake_torch(tmp_path)
    whole = (tmp_path / "torch/__init__.py").read_text()
    (tmp_path / "torch/__init__.py").write_text("raise OSError('libcudart.so.12')\n")
    code = "try: import torch\nexcept OSError: pass\nimport os; print('on', flush=True); os._exit(0)"
    assert run(tmp_path, code).stdout == "on\n"
    assert phases(tmp_path) == ["ended"]
    shutil.rmtree(tmp_path / "pages")
    again = f"open({str(tmp_path / 'torch/__init__.py')!r}, 'w').write({whole!r})\nimport torch"
    done = run(
        tmp_path,
        code.replace("print", f"{again}; print").replace("import os; ", "import os\n"),
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert (done.stdout, done.stderr) == ("on\n", "")
    assert phases(tmp_path) == ["loading"]


CHILDREN = """
import multiprocessing, os, signal, sys
def work(what):
    import torch
    from _probing_probe import page
    if page._words is None: page.open_page()  # as at the first step of a forked trainer
    page.step_done()
    if what == "raises": raise ValueError
    if what == "killed": os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    import multiprocessing.util
    if "before" in sys.argv: import torch
    method = multiprocessing.get_context(os.environ["METHOD"])
    child = method.Process(target=work, args=(os.environ["WHAT"],))
    child.start(); child.join()
    print(child.pid, child.exitcode)
"""


@pytest.mark.parametrize("before", ["", "before"])
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_children_that_leave_without_atexit_end_in_order(tmp_path: Path, method: str, before: str) -> None:
    """Python ends children by `os._exit` that were forked, or by a server of forks. A killed one does not end in order."""
    fake_torch(tmp_path)
    (tmp_path / "child.py").write_text(CHILDREN)
    for what, code, phase in (("returns", 0, "ended"), ("raises", 1, "ended"), ("killed", -9, "training")):
        start = f"import runpy, sys; sys.argv = ['child.py', {before!r}]; runpy.run_path('child.py', run_name='__main__')"
        done = run(tmp_path, f"import os; os.chdir({str(tmp_path)!r}); {start}", METHOD=method, WHAT=what)
        pid, left = done.stdout.split()
        assert int(left) == code, done.stderr
        assert probe_pages.parse((tmp_path / f"pages/p{pid}.page").read_bytes()).phase == phase


@pytest.mark.parametrize("kind", ["missing", "file", "unwritable"])
def test_a_bad_page_directory_is_only_ours_to_mind(tmp_path: Path, kind: str) -> None:
    """Without a place for the page there is no page; torch imports and nothing is printed."""
    fake_torch(tmp_path)
    target = tmp_path / "elsewhere"
    if kind == "file":
        target.write_text("")
    elif kind == "unwritable":
        target = Path("/proc/self")
    done = run(tmp_path, "import torch; print('ok')", PROBING_PAGE_DIR=str(target))
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_a_link_in_place_of_the_page_is_not_followed(tmp_path: Path) -> None:
    """Another process of the user cannot make the probe write through a link."""
    fake_torch(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    code = (
        f"import os; os.symlink({str(victim)!r}, "
        "os.environ['PROBING_PAGE_DIR'] + '/p' + str(os.getpid()) + '.page'); import torch"
    )
    assert run(tmp_path, code).returncode == 0
    assert victim.read_text() == "precious"


def test_sitecustomize_parses_on_every_python() -> None:
    """On Python 2.7 it must parse to be able to return; the package needs 3.8."""
    text = (SITE / "sitecustomize.py").read_text()
    tree = ast.parse(text, feature_version=(3, 4))
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal, ast.YieldFrom)
    found = [n for n in ast.walk(tree) if isinstance(n, newer)]
    keyword_only = [n for n in ast.walk(tree) if isinstance(n, ast.arguments) and n.kwonlyargs]
    chained_raise = [n for n in ast.walk(tree) if isinstance(n, ast.Raise) and n.cause]
    annotated = [n for n in ast.walk(tree) if isinstance(n, ast.arg) and n.annotation]
    assert found + keyword_only + chained_raise + annotated == []
    for path in (SITE / "_probing_probe").rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
