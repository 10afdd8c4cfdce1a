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
    if sys.version_info < (3, 4):
        import imp

        try:
            found = imp.find_module("sitecustomize", [p for p in sys.path if p != here])
        except ImportError:
            return
        imp.load_module("sitecustomize", *found)
        return
    paths = [p for p in sys.path if p != here]
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") != "PathFinder":
            continue
        spec = finder.find_spec("sitecustomize", paths)
        if spec is None or spec.loader is None:
            return
        module = type(sys)(spec.name)
        module.__spec__ = spec
        module.__loader__ = spec.loader
        module.__file__ = spec.origin
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
        return


_here = os.path.dirname(os.path.abspath(__file__))
try:
    _arm()
except Exception:  # our failure never becomes the job's; without a page the agent reports the probe as absent
    sys.modules.pop("_probing_probe.importhook", None)
_chain(_here)
