"""What faults of several families share: how a job felt it, and what is written after it."""

from __future__ import annotations

from benchmarks.campaign import words
from benchmarks.campaign.story import Story
from probing_cluster.core import records

HW, SW = records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE
HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO

LOST = ("unspecified launch failure", "unknown error", "no CUDA-capable device is detected")
ECC = ("uncorrectable ECC error encountered",)
ANY = ("unspecified launch failure", "unknown error", "an illegal memory access was encountered")


def dies(
    s: Story, node: str | None, gpu: int | None, what: tuple[str, ...] = ANY, *, crash: float = 0.5
) -> float:
    """How the job felt it; returns how long before its end the fault came."""
    rng = s.rng
    s.log += words.progress(rng, rng.randrange(2, 12))
    rank = s.rank_of(node, gpu) if node is not None and gpu is not None else None
    if s.ranks == 1 or rng.random() < crash:
        at = rng.uniform(0.5, 40)
        if rank is not None:
            s.log += words.cuda_error(rng, rng.choice(what), rank if s.ranks > 1 else None)
            s.log += words.peers_gone(rng, words.others(s, rank))
        s.log += words.srun_end(rng, s, 1)
        s.exit_code = 1
        return at
    timeout_s = rng.choice([600, 1800])
    s.ran_s = max(s.ran_s, timeout_s * 1.5)
    s.log += words.watchdog(rng, words.others(s, rank if rank is not None else -1), timeout_s)
    aborted = rng.random() < 0.5
    s.log += words.srun_end(rng, s, 1, signal="Aborted" if aborted else "")
    s.exit_code = 134 if aborted else 1
    return timeout_s + rng.uniform(1, 40)


def aftermath(s: Story, node: str, gpu: int, before_s: float) -> None:
    """What the driver says when it ends the other channels."""
    rng = s.rng
    for code in rng.sample([43, 45], rng.randrange(0, 3)):
        for _ in range(rng.randrange(1, 4)):
            s.kernel(node, before_s - rng.uniform(0.01, 2), words.xid(rng, code, gpu))


def aer(s: Story, grade: str, device: str) -> list[str]:
    """A PCIe error report."""
    rng = s.rng
    port = f"0000:{rng.choice('159c')}{rng.randrange(10)}:01.0"
    layer, bit = rng.choice(
        [
            ("Transaction Layer", "[14] CmpltTO                (First)"),
            ("Data Link Layer", "[ 4] DLP                    (First)"),
        ]
    )
    if grade == "corrected":
        return [
            f"pcieport {port}: AER: Corrected error received: {device}",
            f"pcieport {port}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            f"pcieport {port}:   device [8086:352a] error status/mask=00000001/00002000",
            f"pcieport {port}:    [ 0] RxErr                  (First)",
        ]
    return [
        f"pcieport {port}: AER: Uncorrected (Fatal) error received: {device}",
        f"pcieport {port}: PCIe Bus Error: severity=Uncorrected (Fatal), type={layer}, (Requester ID)",
        f"pcieport {port}:   device [8086:352a] error status/mask=00004000/00000000",
        f"pcieport {port}:    {bit}",
    ]
