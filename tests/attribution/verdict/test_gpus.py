"""Which GPU an event means, and whose it was."""

from __future__ import annotations

import pytest

from probing_cluster.attribution.verdict import gpus
from probing_cluster.core import records


@pytest.mark.parametrize(
    "text", ["0000:5e:00", "0000:5E:00.0", "00000000:5e:00.0", "5e:00.0", "PCI:0000:5e:00"]
)
def test_pci_addresses_of_any_spelling_are_one(text):
    """Domain length, case, function and prefix do not matter."""
    assert gpus.pci_key(text) == "0000:5e:00"


def test_no_address_is_none():
    """Nothing known stays nothing."""
    assert gpus.pci_key(None) is None
    assert gpus.pci_key("") is None


def test_names_are_learned_from_events_that_carry_several(make):
    """An event with UUID, index and address teaches the others."""
    known = gpus.learn([make.xid(31, 3)], ())["n2"]
    raw = make.event(kind="xid", code="79", pci_bus_id="0000:53:00.0")
    assert known.uuid_of(raw) == make.uuid("n2", 3)
    assert known.device_of(raw) == "gpu3"
    assert known.is_gpu(raw) is True
    assert known.is_gpu(make.event(kind="pcie_aer", pci_bus_id="0000:10:00.0")) is False
    assert gpus.GpuMap().is_gpu(raw) is None


def test_the_prologs_record_teaches_the_indices(make):
    """SLURM_JOB_GPUS and its UUIDs."""
    given = records.JobAllocation(
        cluster="c", node="n1", job_id=1, at=make.start, gpu_uuids=("a", "b"), gpu_indices="2,5"
    )
    assert gpus.learn((), [given])["n1"].uuid_by_device == {"gpu2": "a", "gpu5": "b"}


@pytest.mark.parametrize(
    ("held", "index", "alone", "expected"),
    [
        ((3,), 3, False, gpus.PartCertainty.HELD),
        ((2,), 3, True, gpus.PartCertainty.NOT),
        ((), 3, True, gpus.PartCertainty.NOT),
        (None, 3, True, gpus.PartCertainty.WHOLE),
        (None, 3, False, gpus.PartCertainty.MAYBE),
    ],
)
def test_who_held_it(make, held, index, alone, expected):
    """By UUID where the attempt's are known; else by whether it shared the node."""
    known = None if held is None else make.gpus("n2", indices=held)
    attempt = make.attempt(nodes=("n2",), gpus=known)
    assert gpus.hold_of_gpu(make.xid(79, index), attempt, gpus.GpuMap(), None, alone=alone) is expected


def test_an_attempt_without_gpus_held_none(make):
    """A job without GPUs is no victim of a GPU."""
    attempt = make.attempt(n_gpus=0, gpus=None)
    assert gpus.hold_of_gpu(make.xid(79), attempt, gpus.GpuMap(), None, alone=True) is gpus.PartCertainty.NOT


def test_the_index_decides_where_uuids_could_not_be_resolved(make):
    """The Prolog knew the indices only."""
    given = records.JobAllocation(cluster="c", node="n2", job_id=1, at=make.start, gpu_indices="0,1")
    attempt = make.attempt(nodes=("n2",), gpus=None)
    for index, expected in ((1, gpus.PartCertainty.HELD), (3, gpus.PartCertainty.NOT)):
        assert gpus.hold_of_gpu(make.xid(79, index), attempt, gpus.GpuMap(), given, alone=False) is expected


def test_a_job_of_one_cpu_whose_gpus_are_unknown_loses_possibly_at_most_to_a_gpu_fault(make):
    """Such a job often has no GPU at all, also alone on its node."""
    lost = make.xid(79, before_end_s=36)
    one = {"nodes": ("n2",), "n_gpus": None, "gpus": None}
    v = make.judge(lost, attempt=make.attempt(**one, n_cpus=1))
    assert v.confidence is records.Confidence.POSSIBLE
    assert make.judge(lost, attempt=make.attempt(**one, n_cpus=16)).confidence is records.Confidence.LIKELY
    assert make.judge(lost, attempt=make.attempt(**{**one, "n_gpus": 0}, n_cpus=1)).cause == "user_error"


@pytest.mark.parametrize(
    ("about_gpus", "about_driver", "cause", "device"),
    [
        ({}, {}, "gpu_driver", "nvml"),
        ({}, {"node": "n1"}, "gpu_lost", None),
        ({}, {"before_end_s": 400.0}, "gpu_lost", None),
        ({"device": "gpu3"}, None, "gpu_lost", "gpu3"),
        ({}, None, "gpu_lost", None),
    ],
)
def test_gpus_that_are_missed_for_want_of_their_driver_are_not_lost(
    make, about_gpus, about_driver, cause, device
):
    """The count of the GPUs may notice first that the driver is gone. No GPU is called by the name of the check."""
    counted = {"kind": "check", "code": "gpu_count", "device": "gpu_count", "source": "check"}
    count = make.event(9.0, **(counted | about_gpus))
    gone = {"before_end_s": 7.0, "kind": "driver", "code": "DRIVER_NOT_LOADED", "device": "nvml"}
    events = [count] if about_driver is None else [count, make.event(**(gone | about_driver))]
    attempt = make.attempt(nodes=("n2",), n_gpus=8, gpus=make.gpus("n2"))
    v = make.judge(*events, attempt=attempt)
    assert (v.cause, v.device) == (cause, device)
