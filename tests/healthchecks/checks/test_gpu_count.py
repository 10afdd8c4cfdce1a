"""GPUs missing, lost, exchanged or unreachable."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome, Severity
from probing_cluster.healthchecks import nodeview
from probing_cluster.healthchecks.readers import nvml

MI300X = "pci:v00001002d000074A1sv00001002sd000074A1bc12sc00i00"
AMD_DISPLAY = "pci:v00001002d000073BFsv00001002sd00000E3Abc03sc00i00"
INTEL_DISPLAY = "pci:v00008086d0000A780sv00001458sd0000D000bc03sc80i00"
BMC = "pci:v00001A03d00002000sv00001A03sd00002000bc03sc00i00"
H100 = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"


def lack(kind: nvml.SnapshotLack, code: str) -> dict[str, Any]:
    return nvml.to_json(nvml.NvmlUnavailable(kind=kind, message=f"NVML: {code}", code=code))


def test_all_there(node: Any) -> None:
    """As many GPUs as expected are ok; without an expectation that is said."""
    node.have_gpus(8)
    assert node.check("gpu_count", expected=8).outcome is Outcome.OK
    finding = node.check("gpu_count")
    assert finding.outcome is Outcome.OK
    assert "no number is configured" in finding.message


def test_slurm_says_how_many(node: Any) -> None:
    """Slurm's configured count stands where the site file says nothing; one GPU less fails, high."""
    node.have_gpus(7)
    node.expected = nodeview.Expectations(gpu_count=8)
    finding = node.check("gpu_count")
    assert (finding.outcome, finding.measured, finding.threshold, finding.severity) == (
        Outcome.FAIL,
        7,
        8,
        None,
    )


def test_a_missing_one_is_named_by_its_address(node: Any) -> None:
    """A GPU on the PCI bus that NVML does not list is named when the count is short."""
    node.have_gpus(2)
    for address in ("0000:01:00.0", "0000:02:00.0", "0000:5e:00.0"):
        node.pci(address, H100)
    finding = node.check("gpu_count", expected=3)
    assert finding.outcome is Outcome.FAIL
    assert "0000:5e:00.0" in finding.message


def test_a_lost_one_is_counted_once(node: Any) -> None:
    """NVML gives no address of a lost GPU: the one on the bus that it does not list is the same GPU."""
    node.have_gpus(2)
    for address in ("0000:01:00.0", "0000:02:00.0"):
        node.pci(address, H100)
    node.gpu(1, lost="GPU_IS_LOST", pci_bus_id=None)
    finding = node.check("gpu_count", expected=2)
    assert (finding.outcome, "more" in finding.message) == (Outcome.FAIL, False)
    node.pci("0000:5e:00.0", H100)
    assert "0000:5e:00.0" in node.check("gpu_count", expected=2).message


def test_bound_elsewhere_is_not_missing(node: Any) -> None:
    """A GPU given to a virtual machine (another driver) is not missed."""
    node.have_gpus(1)
    node.pci("0000:01:00.0", H100)
    node.pci("0000:5e:00.0", H100)
    node.link("sys/bus/pci/devices/0000:5e:00.0/driver", "../../../../bus/pci/drivers/vfio-pci")
    assert node.check("gpu_count", expected=1).outcome is Outcome.OK


def test_lost_gpu(node: Any) -> None:
    """A GPU that NVML calls lost fails, with its UUID, whatever the count."""
    node.have_gpus(8)
    node.gpu(3, lost="GPU_IS_LOST")
    finding = node.check("gpu_count", expected=8)
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "gpu3")
    assert finding.detail["findings"][0]["gpu_uuid"] == "GPU-3"


def test_a_jobs_gpu_is_gone(node: Any) -> None:
    """A UUID that Slurm gave to a running job and that is not there fails, with the job's id."""
    node.have_gpus(2)
    node.expected = nodeview.Expectations(allocated={4242: ("GPU-0", "GPU-9")})
    finding = node.check("gpu_count")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "GPU-9")
    assert "4242" in finding.message


def test_another_model(node: Any) -> None:
    """A GPU of another model fails, low: jobs run, but not as they were promised."""
    node.have_gpus(2)
    node.gpu(1, name="NVIDIA A100-SXM4-40GB")
    finding = node.check("gpu_count", model="H100")
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "gpu1", Severity.LOW)


def test_more_than_configured(node: Any) -> None:
    """More GPUs than configured is a mistake in the configuration: a warning."""
    node.have_gpus(8)
    assert node.check("gpu_count", expected=4).outcome is Outcome.WARN


@pytest.mark.parametrize("code", ["DRIVER_NOT_LOADED", "GPU_IS_LOST"])
def test_nothing_answers(node: Any, code: str) -> None:
    """With GPUs on the bus and no driver, or all of them lost, the node has no GPU: fail, high."""
    node.pci("0000:01:00.0", H100)
    node.facts["nvml"] = lack(nvml.SnapshotLack.DRIVER, code)
    finding = node.check("gpu_count")
    assert (finding.outcome, finding.severity, finding.measured, finding.threshold) == (
        Outcome.FAIL,
        None,
        0,
        1,
    )


def test_versions_apart(node: Any) -> None:
    """A library newer than the loaded driver fails, low: running jobs are not hurt."""
    node.facts["nvml"] = lack(nvml.SnapshotLack.DRIVER, "LIB_RM_VERSION_MISMATCH")
    finding = node.check("gpu_count", expected=8)
    assert (finding.outcome, finding.severity) == (Outcome.FAIL, Severity.LOW)


def test_no_library_with_gpus_is_no_verdict(node: Any) -> None:
    """A library we cannot find may be our own wrong path: error, never fail."""
    node.pci("0000:01:00.0", H100)
    assert node.check("gpu_count", expected=8).outcome is Outcome.ERROR


def test_no_gpu(node: Any) -> None:
    """A node without GPU, library and promise has nothing to judge."""
    assert node.check("gpu_count").outcome is Outcome.ABSENT


def test_nvml_timeout_is_no_verdict(node: Any) -> None:
    """NVML's own timeout is an error that timed out."""
    node.facts["nvml"] = lack(nvml.SnapshotLack.HANG, "TIMEOUT")
    finding = node.check("gpu_count", expected=8)
    assert (finding.outcome, finding.timed_out) == (Outcome.ERROR, True)


def test_slices_are_not_counted_as_gpus(node: Any) -> None:
    """Slurm counts slices where MIG is on, by whatever type; the site file's number, and a lost GPU, count all the same."""
    node.have_gpus(7, mig=True)
    node.expected = nodeview.Expectations(gpu_count=56)
    assert node.check("gpu_count").outcome is Outcome.OK
    assert node.check("gpu_count", expected=8).outcome is Outcome.FAIL
    node.gpu(3, lost="GPU_IS_LOST")
    assert node.check("gpu_count").outcome is Outcome.FAIL


def test_virtual_functions_are_no_gpus(node: Any) -> None:
    """Of a GPU that is shared out to virtual machines NVML lists the card only."""
    node.have_gpus(1)
    node.pci("0000:01:00.0", H100)
    node.pci("0000:02:00.4", H100, physfn="")
    assert node.check("gpu_count", expected=1).outcome is Outcome.OK


@pytest.mark.parametrize("chip", [MI300X, AMD_DISPLAY])
@pytest.mark.parametrize("code", ["DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND"])
def test_gpus_of_another_maker(node: Any, chip: str, code: str) -> None:
    """Slurm's number is one of theirs, also where the image has NVIDIA's library: absent, to every GPU check."""
    for address in ("0000:05:00.0", "0000:26:00.0"):
        node.pci(address, chip)
    node.pci("0000:03:00.0", BMC)
    node.expected = nodeview.Expectations(gpu_count=2)
    kind = nvml.SnapshotLack.ABSENT if code == "LIBRARY_NOT_FOUND" else nvml.SnapshotLack.DRIVER
    node.facts["nvml"] = lack(kind, code)
    assert (node.check("gpu_count").outcome, node.check("gpu_ecc").outcome) == (
        Outcome.ABSENT,
        Outcome.ABSENT,
    )
    node.pci("0000:c1:00.0", H100)  # and one whose driver is not there
    assert node.check("gpu_count").outcome is (Outcome.ERROR if code == "LIBRARY_NOT_FOUND" else Outcome.FAIL)


def test_all_off_the_bus(node: Any) -> None:
    """A node whose GPUs are all gone from the bus fails, with the displays of its BMC and its processor."""
    node.pci("0000:03:00.0", BMC)
    node.pci("0000:00:02.0", INTEL_DISPLAY)
    node.facts["nvml"] = lack(nvml.SnapshotLack.DRIVER, "DRIVER_NOT_LOADED")
    assert node.check("gpu_count").outcome is Outcome.ABSENT  # a CPU node of the same image
    node.expected = nodeview.Expectations(gpu_count=8)
    assert node.check("gpu_count").outcome is Outcome.FAIL
    assert node.check("gpu_ecc").outcome is Outcome.ERROR


def test_a_processors_display_hides_no_missing_gpu(node: Any) -> None:
    """Beside NVIDIA's GPUs a display of AMD's processor is none of Slurm's GPUs."""
    node.have_gpus(3)
    for address in ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0"):
        node.pci(address, H100)
    node.pci("0000:0b:00.0", AMD_DISPLAY)
    node.expected = nodeview.Expectations(gpu_count=4)
    assert node.check("gpu_count").outcome is Outcome.FAIL
