"""Waits for torch without importing anything: a finder in front of `sys.meta_path`.

Before torch loads it sets the flight-recorder switches by the names of the torch that is there, and opens the page;
afterwards it installs the hooks. A program that only looks whether torch is there (`importlib.util.find_spec`) gets neither. Modules torch loads later (checkpoint,
compiler) are met the same way. `import probing_tables` finds tables/ here, unless the user has a module of that name
(the wheel, which is the same package): so nothing of theirs is ever shadowed.
"""

import os
import sys

_LATER = ("torch.distributed.checkpoint.state_dict_saver", "torch._dynamo.callback")
_TABLES = "probing_tables"


class Finder:
    """Sees `torch` (and a few of its modules) being imported; everything else passes by."""

    def __init__(self):
        self.busy = False

    def find_spec(self, name, path=None, target=None):
        """The real spec of a watched module with its loader wrapped; None for all others."""
        if name != "torch" and name != _TABLES and name not in _LATER or self.busy:
            return None
        self.busy = True
        try:
            spec = _real_spec(name, path, target, self)
            if name == _TABLES:
                return spec or _own_spec(name)
            if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
                return None
            spec.loader = Loader(spec.loader, name, spec.origin)
            return spec
        finally:
            self.busy = False


def _real_spec(name, path, target, ours):
    for finder in sys.meta_path:
        if finder is ours or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def _own_spec(name):
    from importlib.util import spec_from_file_location

    path = os.path.join(os.path.dirname(__file__), "tables", "__init__.py")
    return spec_from_file_location(name, path, submodule_search_locations=[os.path.dirname(path)])


class Loader:
    """The module's own loader, with a call after it has run, and for torch one before."""

    def __init__(self, inner, name, origin):
        self.inner = inner
        self.name = name
        self.origin = origin

    def create_module(self, spec):
        """As the module's own loader does."""
        return self.inner.create_module(spec)

    def exec_module(self, module):
        """Runs the module, restores its own loader, then installs our hooks."""
        # Restored first: inspect, pickle and importlib.resources must find the real loader.
        module.__loader__ = self.inner
        if module.__spec__ is not None:
            module.__spec__.loader = self.inner
        if self.name != "torch":
            self.inner.exec_module(module)
        else:
            _quietly(_before_torch, self.origin)
            try:
                self.inner.exec_module(module)
            except BaseException:
                _quietly(_without_torch)
                raise
        _quietly(_after, self.name, module)

    def __getattr__(self, attribute):
        return getattr(self.inner, attribute)


def _quietly(function, *args):
    """Calls ours; a failure is kept in `failure` for tests and shows as a missing page, never raised."""
    global failure
    try:
        function(*args)
    except Exception as exc:
        failure = exc


failure = None


def _before_torch(origin):
    from _probing_probe import switches

    switches.set_for(origin)
    from _probing_probe import page

    page.open_page()


def _without_torch():
    # The user's to see, or to go on without it: either way this process is no rank that may stall.
    from _probing_probe import layout, page

    page.set_phase(layout.ENDED)


def _after(name, module):
    from _probing_probe import torchhooks

    if name == "torch":
        torchhooks.install(module)
        may_answer()
    elif name == "torch._dynamo.callback":
        torchhooks.install_compiler(module)
    else:
        torchhooks.install_checkpoint(module)


def arm():
    """Puts the finder in front, once."""
    if "torch" not in sys.modules and not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def may_answer():
    """A module that a program uses on purpose is there: from now on its owner may ask it, if the job is live."""
    if (os.environ.get("PROBING") or os.environ.get("PROBING_DEFAULT", "")).lower() == "live":
        from _probing_probe import responder

        _quietly(responder.start)


def page_directory():
    """The per-job directory root made for this job's pages."""
    return os.environ["PROBING_PAGE_DIR"]
