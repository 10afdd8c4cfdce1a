# Runs at every start of a Python interpreter in a job step. Rules: say nothing, change nothing of the
# user's, cost nothing, and never fail. It must parse on Python 2.7, where it returns at once.
import os
import sys


def _arm():
    if sys.version_info < (3, 8) or not os.environ.get("PROBING_PAGE_DIR"):
        return
    from _probing_probe import importhook

    importhook.arm()


def _chain(here):
    # The user's own sitecustomize, which ours has shadowed, runs as if ours were not there: same
    # module name, and its exceptions are Python's to report, as they always were.
    # Another may do the same: one of ours in an older place, or some tool's. None of them is run twice: what stands
    # before us on the path has run already.
    passed = sys.__dict__.setdefault("_probing_passed", [])
    paths = list(sys.path)
    for path in paths[paths.index(here) + 1 if here in paths else 0 :]:
        if path != here and path not in passed and _found(path, passed):
            return


def _found(path, passed):
    if sys.version_info < (3, 4):
        import imp

        try:
            found = imp.find_module("sitecustomize", [path])
        except ImportError:
            return False
        passed.append(path)
        imp.load_module("sitecustomize", *found)
        return True
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") != "PathFinder":
            continue
        spec = finder.find_spec("sitecustomize", [path])
        if spec is None or spec.loader is None:
            return False
        passed.append(path)
        from importlib.util import module_from_spec

        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)
        return True
    return False


_here = os.path.dirname(os.path.abspath(__file__))
try:
    _arm()
except Exception:  # our failure never becomes the job's; without a page the agent reports the probe as absent
    sys.modules.pop("_probing_probe.importhook", None)
_chain(_here)
