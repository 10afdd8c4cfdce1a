"""Matrix products give the right result, everywhere, and as quickly as on the others of this model."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from probing_cluster.diagnostics import cpus, exact, gpus, machine, registry
from probing_cluster.healthchecks import findings


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    made = [_on_cpu(node)]
    a, b = exact.factors(node.options.seed)
    sizes = {"cuda": node.options.gpu_size, "cpu": node.options.torch_cpu_size}
    try:
        version, parts = gpus.ask(
            node,
            "gemm",
            TEST.deadline_s,
            sizes=sizes,
            a=a,
            b=b,
            expected=exact.checksums(a, b, exact.PERIOD),
        )
        made += gpus.judged(
            parts, version, lambda part: (part["best_s"], "s", _speed(part["size"], part["best_s"]))
        )
    except findings.Absent as exc:
        made.append(findings.absent(f"no GPU was multiplied on: {exc}", device="gpu"))
    return made


def _on_cpu(node: machine.Machine) -> findings.Finding:
    size = node.options.size
    a, b = exact.factors(node.options.seed)
    expected = exact.checksums(a, b, size)
    left, right = exact.matrices(a, b, size)
    best, wrong, broken = float("inf"), 0, 0
    before = node.cpu_s(), node.wall_s(), node.held_back_s()
    for _ in range(node.options.repeats):
        began = node.cpu_s()
        product = node.product(left, right)
        best = min(best, node.cpu_s() - began)
        wrong_now, broken_now = exact.wrong_elements(product, expected)
        wrong, broken = wrong + wrong_now, broken + broken_now
    detail: dict[str, str | float] = {
        "model": cpus.model(),
        "engine": f"python {platform.python_version()} n={size}",
        "elements": size * size * node.options.repeats,
    }
    longer = _held_back(node, *before)
    if longer > 1:
        detail[registry.QUOTA] = round(node.quota_times(), 4)
    if wrong:
        why = f", {broken} of them NaN or infinite" if broken else ""
        return findings.fail(
            f"{wrong} of {detail['elements']} elements are wrong{why}", device="cpu", detail=detail
        )
    words = _speed(size, best * longer) + (
        f"; a CPU quota makes it take {longer:.2f} times as long" if longer > 1 else ""
    )
    return findings.ok(words, device="cpu", measured=best * longer, unit="s", detail=detail)


def _held_back(node: machine.Machine, cpu_s: float, wall_s: float, held_s: float) -> float:
    """How many times as long the products took because a quota held them back; 1 without one.

    Over all of them: a quota stops one for a tenth of a second and lets the next one pass untouched.
    """
    ran_s = node.cpu_s() - cpu_s
    waited_s = max(0.0, node.wall_s() - wall_s - ran_s)
    # What the control group counts is of all its processors: this thread was not held for longer than it waited.
    held_s = min(node.held_back_s() - held_s, waited_s)
    return 1 + held_s / ran_s if ran_s > 0 else 1.0


def _speed(size: int, seconds: float) -> str:
    return f"{detail_flops(size, seconds) / 1e9:.3g} GFLOP/s, every element right"


def detail_flops(size: int, seconds: float) -> float:
    """Floating-point operations a second of one product."""
    return 2 * size**3 / seconds if seconds > 0 else 0.0


TEST = registry.Test(
    name="gemm",
    proves="Every element of matrix products is right, on the CPU and on each GPU, and they take no longer than on equal parts.",
    needs="GPUs, and the CPU through torch: [diagnostics] torch_python",
    fails="an element is wrong, NaN or infinite",
    next_step="A part that calculates wrongly spoils every job on it: reset it, and replace it when it does so again.",
    run=run,
    judged="compute",
    deadline_s=120.0,
)
