"""The GPUs of the node as GPU checks see them: the sweep's one NVML snapshot, judged GPU by GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized

from probing_cluster.healthchecks import findings, nodeview
from probing_cluster.healthchecks.readers import nvml, pci


def reading(node: nodeview.NodeView) -> nvml.NvmlSnapshot | nvml.NvmlUnavailable:
    """This sweep's NVML reading; raises TimedOut or Undetermined when reading it went wrong."""
    fact = node.facts.get("nvml")
    if fact is None:
        raise findings.Undetermined("NVML was not read in this sweep")
    if "error" in fact:
        kind = nodeview.TimedOut if fact["timed_out"] else findings.Undetermined
        raise kind(f"NVML: {fact['error']}")
    return node.shared("nvml.reading", lambda: nvml.from_json(fact))


def snapshot(node: nodeview.NodeView) -> nvml.NvmlSnapshot:
    """The snapshot; raises Absent on a node without NVIDIA GPUs, Undetermined where they do not answer."""
    value = reading(node)
    if isinstance(value, nvml.NvmlUnavailable):
        if (value.kind is nvml.SnapshotLack.ABSENT and not on_pci(node)) or unused_library(
            value, on_pci(node), configured(node)
        ):
            raise findings.Absent("no NVIDIA GPU on this node")
        raise findings.Undetermined(value.message)
    if not value.gpus:
        raise findings.Absent("no NVIDIA GPU on this node")
    return value


def on_pci(node: nodeview.NodeView) -> list[pci.PciFunction] | None:
    """NVIDIA GPUs on the PCI bus, without virtual functions; None where the bus cannot be seen."""
    try:
        found = [f for f in pci.functions(node) if f.is_gpu]
    except findings.Absent:
        return None
    return [f for f in found if not node.exists(f"{pci.DEVICES}/{f.address}/physfn")]


def configured(node: nodeview.NodeView) -> int | None:
    """How many NVIDIA GPUs Slurm configures; None where its number may mean GPUs of another maker."""
    found = on_pci(node)
    return None if found is not None and pci.foreign_gpus(pci.functions(node)) else node.expected.gpu_count


def unused_library(lack: nvml.NvmlUnavailable, found: Sized | None, wanted: int | None) -> bool:
    """Whether only NVIDIA's library is here, as in an image for all nodes, and none of its GPUs."""
    return lack.code == "DRIVER_NOT_LOADED" and found is not None and not found and not wanted


def present(node: nodeview.NodeView) -> tuple[nvml.NvmlGpu, ...]:
    """Every GPU that NVML lists, lost ones too: `read` of the checks that need nothing else."""
    return snapshot(node).gpus


Judge = Callable[[nvml.NvmlGpu], findings.Finding]


def each(gpus: Iterable[nvml.NvmlGpu], judge: Judge) -> list[findings.Finding]:
    """One finding per GPU; a lost one cannot be seen (gpu_count is the check that fails on it)."""
    return [_one(gpu, judge) for gpu in gpus]


def _one(gpu: nvml.NvmlGpu, judge: Judge) -> findings.Finding:
    if gpu.lost is not None:
        return unseen(gpu, f"cannot be read: {gpu.lost}")
    return judge(gpu)


def ok(gpu: nvml.NvmlGpu, text: str = "") -> findings.Finding:
    """The GPU is as it should be."""
    return findings.ok(f"{gpu.device}: {text}", device=gpu.device, detail=gpu.identity)


def unseen(gpu: nvml.NvmlGpu, text: str) -> findings.Finding:
    """The GPU would not say."""
    return findings.unseen(f"{gpu.device}: {text}", device=gpu.device, detail=gpu.identity)


def lacks(gpu: nvml.NvmlGpu, what: str, *fields: str) -> findings.Finding:
    """A value is missing: an error when NVML failed to give it, absent when this GPU does not have it."""
    words = {gpu.unread[f] for f in fields if f in gpu.unread}
    if words:
        return unseen(gpu, f"{what} cannot be read: {', '.join(sorted(words))}")
    return findings.absent(f"{gpu.device} has no {what}", device=gpu.device)


def bad(
    make: Callable[..., findings.Finding], gpu: nvml.NvmlGpu, text: str, **more: object
) -> findings.Finding:
    """A finding (`findings.fail` or `findings.warn`) about one GPU."""
    return make(f"{gpu.device}: {text}", device=gpu.device, detail=gpu.identity, **more)


def count(gpus: Sequence[nvml.NvmlGpu]) -> str:
    """ "8 GPUs", for messages."""
    return findings.plural(len(gpus), "GPU")
