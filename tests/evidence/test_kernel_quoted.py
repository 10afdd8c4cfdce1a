"""What somebody quotes is not a fault: every form of the grammar inside every line that carries text of users.

A carrier may give a finding of its own kind (the kernel's OOM killer names the process) or none; a form in it, never.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.control_plane.imports import kernel as kernel_import
from probing_cluster.core.records import Severity
from probing_cluster.evidence import classify
from probing_cluster.evidence.kernel import daemons, message_start, reader
from probing_cluster.probe_agent.sources import kernel_words
from tests.every_case import every
from tests.evidence import test_kernel_families, test_kernel_wild

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=a, GPU has fallen off the bus."
FORMS = sorted(
    {line for line, *_ in test_kernel_families.FORMS if "mmfs" not in line}
    | {line for kind, *_, line in test_kernel_wild.FOUND if kind != "none"}
    | {
        XID,
        "Kernel panic - not syncing: Fatal exception",
        "EXT4-fs (sda1): Remounting filesystem read-only",
        "LustreError: 1:0:(osd_handler.c:1:osd()) LBUG",
        "mce: [Hardware Error]: Uncorrected error",
        "thermal thermal_zone0: critical temperature reached (105 C), shutting down",
        "bond0: now running without any active interface!",
    }
)
"""Whole messages, as the kernel prints them."""


def _one_of_each() -> list[str]:
    found = {(f.kind, f.code): form for form in FORMS if (f := reader.KernelReader().read_message(form))}
    return sorted(found.values())


SORTS = _one_of_each()
"""One form of every kind and code."""

OWN: dict[str, str] = {
    # what the kernel prints of a user's choice, and the one kind it may be; {comm} is cut to a process name
    "overlayfs: failed to resolve '{}': -2": "",
    "overlayfs: upperdir is in-use as upperdir/workdir of another mount, mount with '-o index=off' ({})": "",
    "process '{}' started with executable stack": "",
    "{}[4242]: segfault at 0 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]": "",
    "python[4242]: segfault at 0 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in {}[7f7c7ac00000+d3d3000]": "",
    "traps: {}[99] trap invalid opcode ip:7f00 sp:7f10 error:0 in libtorch.so[7f00+1a]": "",
    "traps: python[99] general protection fault ip:7f00 sp:7f10 error:0 in {}[7f00+1a]": "",
    "{}[99]: bad frame in rt_sigreturn frame:00007ffd ip:7f sp:7f orax:ffffffffffffffff in {}[7f+1a]": "",
    "{}/99: potentially unexpected fatal signal 11.": "",
    "{} (99): drop_caches: 3": "",
    "{} (99) used greatest stack depth: 11000 bytes left": "",
    "CPU: 17 PID: 2024380 Comm: {} Tainted: P           OE     5.15.0-112-generic": "",
    "audit: type=1326 audit(1700000000.1:2): auid=1000 uid=1000 pid=3 comm=\"{}\" exe=\"{}\" sig=0 arch=c000003e": "",
    'audit: type=1400 audit(1700000000.1:2): apparmor="DENIED" operation="open" name="{}" comm="{}"': "",
    "audit: type=1300 {}": "",
    "systemd[1]: {}": "",
    "systemd[1]: Started {}.": "",
    "systemd-journald[400]: {}": "",
    "usb 1-1: Product: {}": "",
    "usb 1-1: Manufacturer: {}": "",
    "input: {} as /devices/pci0000:00/0000:00:14.0/usb1/1-1/input/input5": "",
    "hid-generic 0003:046D:C31C.0001: input,hidraw0: USB HID v1.10 Keyboard [{}] on usb-0000:00:14.0-1/input0": "",
    "scsi 6:0:0:0: Direct-Access     {} PQ: 0 ANSI: 6": "",
    "EXT4-fs (loop0): Unrecognized mount option \"{}\" or missing value": "",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: {}": "",
    "XFS (sda1): unknown mount option [{}].": "",
    "XFS (sda1): {}(123) possible memory allocation deadlock size 65552 in kmem_alloc (mode:0x2408240)": "",
    "FAT-fs (loop0): bogus volume label {}": "",
    "squashfs: Unknown parameter '{}'": "",
    "fuse: Bad value for '{}'": "",
    "cgroup: cgroup: unknown option \"{}\"": "",
    "cgroup: fork rejected by pids controller in /{}": "limit",
    "nfs: server {} not responding, still trying": "nfs",
    "nfs: server {} OK": "nfs",
    "NFS: directory {} contains a readdir loop.Please contact your server vendor.": "nfs",
    "CIFS: VFS: \\\\{} has not responded in 180 seconds. Reconnecting...": "filesystem",
    "CIFS: VFS: BAD_NETWORK_NAME: \\\\{}": "filesystem",
    "Lustre: Mounted {}-client": "lustre",
    "{} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0": "oom",
    "{}: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL)": "oom",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/{},task_memcg=/{},task={},pid=1,uid=1000": "oom",
    "Memory cgroup out of memory: Killed process 1 ({}) total-vm:1kB, anon-rss:1kB": "oom",
    "oom_reaper: reaped process 1 ({}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB": "oom",
    "Task in /{} killed as a result of limit of /{}": "oom",
    "Tasks in /{} are going to be killed due to memory.oom.group set": "oom",
    "INFO: task {}:77 blocked for more than 120 seconds.": "hung_task",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [{}:77]": "hung_task",
    "Memory failure: 0x7740c0: Killing {}:77 due to hardware memory corruption": "mce",
    "{comm}: attempt to access beyond end of device": "block_io",
    "EXT4-fs error (device sda1): ext4_lookup:1: inode #2: comm {comm}: deleted inode referenced: 3": "block_io",
    "EXT4-fs error (device sda1): ext4_lookup:1: inode #2: comm ls: '{}' linked to parent dir": "block_io",
    "BTRFS warning (device sda1): checksum error at logical 1 on dev /dev/sda1, root 5, inode 2 (path: {})": "block_io",
    "BTRFS error (device sda1): unrecognized mount option '{}'": "",
    "NVRM: API mismatch: the client '{}' (pid 7) has version 1": "driver",
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name={comm}, Ch 00000008": "xid",
    "loop0: detected capacity change from 0 to 8, {}": "",
    "device {comm} entered promiscuous mode": "",
    "IPv6: ADDRCONF(NETDEV_CHANGE): {}: link becomes ready": "",
    "TCP: request_sock_TCP: Possible SYN flooding on port 80. {}": "",
    "a name with a line break\n{}": "",
    "overlayfs: failed to resolve '11 printk messages dropped ** [   12.345678] {}': -2": "",
    "overlayfs: failed to resolve '2026-10-10_10:10:10.112+0200: [E] {}': -2": "",
    "overlayfs: failed to resolve 'a\n{}': -2": "",
    "capability: warning: `{}' uses 32-bit capabilities (legacy support in use)": "",
    "warning: `{}' uses wireless extensions which will stop working for Wi-Fi 7 hardware": "",
    "{comm} (77): Using mlock ulimits for SHM_HUGETLB is deprecated": "",
    "amdgpu: pasid 32770 process {} pid 7 thread {} pid 7": "",
    "i915 0000:00:02.0: [drm] {comm}[77] context reset due to GPU hang": "intel_gpu",
    "i915 0000:00:02.0: [drm] GPU HANG: ecode 9:1:e757fefe, in {comm} [77]": "intel_gpu",
    "xe 0000:03:00.0: [drm] GT0: Timedout job: seqno=1, lrc_seqno=1, guc_id=2, flags=0x0 in {comm} [77]": "intel_gpu",
    "perf: interrupt took too long, see {}": "",
}  # fmt: skip

PROGRAMS = {
    "sudo": "    root : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/usr/bin/grep {}",
    "sudo ": "{}",
    "logger": "{}",
    "CRON[12]": "(root) CMD ({})",
    "sshd[12]": "Accepted publickey for {} from 10.0.0.1 port 22",
    "dockerd[12]": 'time="2024-05-01T10:00:00Z" level=error msg="{}"',
    "slurmd[12]": "{}",
    "slurmd": "error: [job 4242] prolog said: {}",
    "nv-hostengine[12]": "{}",
    "nv-hostengine": "DCGM: Xid error observed: {}",
    "audit[12]": "EXECVE argc=2 a0=\"echo\" a1=\"{}\"",
    "systemd[1]": "{}",
    "probing-agent[12]": "{}",
    "python3[12]": "kernel: {}",
    "NVRM": "{}",
    "bash[12]": "[   12.345678] {}",
    "bash[13]": "11 printk messages dropped ** [   12.345678] {}",
    "bash[14]": "2026-10-10_10:10:10.112+0200: [E] {}",
    "nvidia-persistenced[12]": "{}",
    "rasdaemon[12]": "{}",
    "rasdaemon": "<...>-12 [000] 0.000012: mce_record: {}",
    "mcelog[12]": "{}",
    "ipmiseld[12]": "{}",
    "ipmiseld": "SEL System Event: May-04-2026, 06:00:00, x, Memory, {}",
    "ipmievd": "Memory sensor x {}",
    "smartd[12]": "{}",
    "mdadm[12]": "{}",
    "nvidia-fabricmanager[12]": "{}",
    "nv-fabricmanager[12]": "{}",
    "nv-fabricmanager": "[ERROR] [tid 12] {}",
    "systemd-networkd[1]": "{}",
    "NetworkManager[1]": "{}",
}  # fmt: skip
BELIEVED = {
    "systemd-networkd": frozenset({"ib_link/lost_carrier"}),
    "NetworkManager": frozenset({"ib_link/lost_carrier"}),
    "nv-fabricmanager": frozenset(
        {"fabric_manager/error", "fabric_manager/nvlink", "fabric_manager/start_failed"}
    ),
    "nvidia-persistenced": frozenset({"fabric_manager/persistence"}),
    **dict.fromkeys(daemons.WATCHERS, frozenset(f"{kind}/{code}" for kind, code in daemons.HARDWARE_FACTS)),
}
BELIEVED["nvidia-fabricmanager"] = BELIEVED["nv-fabricmanager"]
STAMPS = {
    "RFC 3164": "Jan 21 11:18:36 n1 {tag}: {text}",
    "RFC 3164 with a priority": "<13>Jan 21 11:18:36 n1 {tag}: {text}",
    "a forged priority": "<3>Jan 21 11:18:36 n1 {tag}: {text}",
    "RFC 5424": "<13>1 2024-05-01T10:00:00.1Z n1 {name} 12 - - {text}",
    "RFC 5424 of a forged facility": "<3>1 2024-05-01T10:00:00.1Z n1 {name} - - - {text}",
    "ISO": "2024-05-01T10:00:00.123456+02:00 n1 {tag}: {text}",
    "journalctl -o short-iso": "2024-05-01T10:00:00+0200 n1 {tag}: {text}",
    "journalctl -o short-precise": "Jan 21 11:18:36.123456 n1 {tag}: {text}",
    "journalctl -o short-full": "Tue 2024-05-01 10:00:00 UTC n1 {tag}: {text}",
    "journalctl -o short-monotonic": "[   12.345678] n1 {tag}: {text}",
    "journalctl -o short-unix": "1700000000.123456 n1 {tag}: {text}",
    "forwarded by rsyslog": "Jan 21 11:18:37 loghost Jan 21 11:18:36 n1 {tag}: {text}",
    "syslog-ng's source and host": "Jan 21 11:18:36 src@n1 {tag}: {text}",
    "facility and level": "2024-05-01 10:00:00 +0000 UTC user.notice {tag}: {text}",
    "forged facility and level": "Jan 21 11:18:36 n1 kern.alert {tag}: {text}",
    "pdsh": "n1: Jan 21 11:18:36 n1 {tag}: {text}",
    "grep": "/var/log/messages:12:Jan 21 11:18:36 n1 {tag}: {text}",
    "without a date": "{tag}: {text}",
}  # fmt: skip


def kind(line: str) -> str:
    """The kind of a whole line read as classify and import do; empty for none."""
    found = reader.KernelReader().read_line(line)
    return found[1].kind if found else ""


def test_every_form_alone_is_a_finding() -> None:
    """The forms below are the grammar's own: alone, each of them is read, by file and by agent alike."""
    wrong = []
    for form in FORMS:
        live = kernel_words.classifier()(form, 1.0)
        found = (kind(form), kind(f"Jan 21 11:18:36 n1 kernel: [   12.345678] {form}"), live and live.kind)
        if not found[0] or len(set(found)) > 1:
            wrong.append((form, found))
    assert wrong == []


@every("carrier", OWN)
def test_what_the_kernel_quotes_is_the_carriers_own_kind(carrier: str) -> None:
    """Live and from a file, whole or cut to a process name, in every place that a user fills."""
    short = [form[:15] for form in SORTS]
    texts = (
        short
        if "{comm}" in carrier
        else [*FORMS, *(made for form in SORTS for made in (form[:15], f"x {form}", f"{form}\n{form}"))]
    )
    wrong = []
    for text in texts:
        message, words = carrier.replace("{comm}", text).replace("{}", text), reader.KernelReader()
        found = words.read_message(message)
        if found is not None and found.kind != OWN[carrier]:
            wrong.append((text, found.kind, found.code))
    for form in SORTS:
        stamped = kind("kernel: [   12.345678] " + carrier.replace("{comm}", form[:15]).replace("{}", form))
        if stamped not in ("", OWN[carrier]):
            wrong.append((form, stamped, "file"))
    assert wrong == []


@every("carrier", OWN)
def test_no_quoting_can_make_a_lesser_fault_grave(carrier: str) -> None:
    """The carrier is as grave as it is with harmless words in it: no quotation can drain a node."""
    plain = kernel_words.classifier()(carrier.replace("{comm}", "a").replace("{}", "a"), 1.0)
    worst = plain.severity if plain is not None else Severity.INFO
    for form in SORTS:
        found = kernel_words.classifier()(carrier.replace("{comm}", form[:15]).replace("{}", form), 1.0)
        assert found is None or found.severity is not Severity.HIGH or worst is Severity.HIGH, (form, found)


@every("program", PROGRAMS)
def test_what_a_program_logs_is_no_kernel_message(program: str) -> None:
    """In every format of syslog and journald; a program that is believed is believed for its own kind only."""
    tag = program.strip()
    own = BELIEVED.get(tag.partition("[")[0], frozenset())
    wrong = []
    for stamp, form in [(s, f) for s in STAMPS for f in (FORMS if s == "RFC 3164" else SORTS[::4])]:
        text = PROGRAMS[program].replace("{}", form)
        line = STAMPS[stamp].format(tag=tag, name=tag.partition("[")[0], text=text)
        found = reader.KernelReader().read_line(line)
        if found is None or f"{found[1].kind}/{found[1].code}" in own:
            continue
        # Nothing but the words is there: a driver's name in front of a colon is the driver's, and any name may be a process's.
        bare = stamp == "without a date"
        if bare and (tag == "NVRM" or found[1].kind in ("oom", "fabric_manager", "hardware_report")):
            continue
        wrong.append((stamp, line, found[1].kind))
    assert wrong == []


def test_the_journals_fields_say_who_wrote_it() -> None:
    """`journalctl -o json`: transport and facility are journald's own word; a program chooses its identifier."""
    real = {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"}
    forged = (
        {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "sudo"},
        {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel", "SYSLOG_FACILITY": "0"},
        {"_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1", "SYSLOG_IDENTIFIER": "kernel"},
        {"_PID": "77", "SYSLOG_IDENTIFIER": "kernel"},
        {"programname": "sudo"},
        {"syslogtag": "logger:"},
    )
    assert [form for form in SORTS if not kind(json.dumps({"MESSAGE": form, **real}))] == []
    assert [(form, f) for form in SORTS for f in forged if kind(json.dumps({"MESSAGE": form, **f}))] == []


def test_a_program_that_writes_to_dev_kmsg_is_none() -> None:
    """The kernel stamps facility 1 or above on what is written there, and escapes the ends of lines."""
    assert [form for form in SORTS if not kind(f"4,12,34,-;{form}")] == []
    forged = (
        *(f"{priority},12,34,-;{{}}" for priority in (12, 14, 28, 190)),
        "4,12,34,-;overlayfs: failed to resolve 'a\\x0a{}': -2",
        " SUBSYSTEM={}",
    )
    assert [line for form in SORTS for f in forged if kind(line := f.replace("{}", form))] == []


def test_an_indented_line_is_the_rest_of_a_message() -> None:
    """dmesg and journalctl print what follows a line break so: a name with one in it begins no message."""
    blanks = (" " * 15, " " * 4)
    assert [line for form in SORTS for blank in blanks if kind(line := f"{blank}{form}")] == []


def test_classify_and_import_refuse_what_the_agent_refuses() -> None:
    """One guard: `probing-ctl classify` and `import --kernel` see nothing in a log of quotations."""
    lines = [
        STAMPS[s].format(tag=p.strip(), name=p.strip().partition("[")[0], text=t.replace("{}", XID)).encode()
        for s in STAMPS
        if s != "without a date"
        for p, t in PROGRAMS.items()
        if "fabricmanager" not in p
    ]
    assert list(classify.classify_stream(lines, "kernel")) == []
    at = datetime(2024, 6, 1, tzinfo=UTC)
    place = kernel_import.FilePlace(file="x", node="n1", cluster="c", read_at=at, reference=at)
    assert kernel_import.read(lines, place).events == []
    assert kernel_import.read([b"May  1 10:00:00 n1 kernel: " + XID.encode()], place).events[0].code == "79"


@given(st.text(max_size=40), st.sampled_from(FORMS))
def test_text_in_front_of_a_form_hides_it(before: str, form: str) -> None:
    """Behind words that are no driver's names a form is never read as itself at that place."""
    words = f"somebody's {before} {form}"
    assert message_start.starts(words) == (0,)


def test_a_process_name_hides_no_message() -> None:
    """A user who names a process like a carrier's words does not silence the driver: names have 15 characters."""
    for name in ("[1]: segfault a", " invoked oom-ki", "' started with ", ": page allocati"):
        found = reader.KernelReader().read_message(XID.replace("name=a", f"name={name}"))
        assert found is not None
        assert (found.kind, found.code) == ("xid", "79")


CONTROL = ("a\n", "\x1b[1m", "reset failed (\n", "\nreset failed (", "\x01GPU lockup", "TX timeout on q")
"""Names of processes; the agent reads the characters themselves, a file has their numbers."""


@every(
    ("carrier", "code"),
    [
        ("i915 0000:00:02.0: {}[77] context reset due to GPU hang", "intel_gpu/hang"),
        ("i915 0000:00:02.0: [drm] *ERROR* {}[77] context reset due to GPU hang", "intel_gpu/hang"),
        ("{} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", "oom/invoked"),
        ("{}: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL)", "oom/alloc_failure"),
        ("Out of memory: Killed process 1 ({}) total-vm:1kB, anon-rss:1kB", "oom/global"),
        ("INFO: task {}:77 blocked for more than 120 seconds.", "hung_task/120"),
        ("{}: attempt to access beyond end of device", "block_io/beyond_end"),
        ("nouveau 0000:01:00.0: {}[7]: failed to idle channel 2 [x[7]]", ""),
    ],
)
def test_a_process_name_may_hold_any_character(carrier: str, code: str) -> None:
    """A line break in a name neither hides the kernel's own message nor begins another one."""
    for name in (*CONTROL, "DRM: GPU lockup", "GPU lockup a"):
        shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name)
        for text in (name, shown):
            found = reader.KernelReader().read_message(carrier.format(text))
            assert (f"{found.kind}/{found.code}" if found else "") == code, text


HANDED_ON = {
    "docker's JSON": '{{"log":"{}\\n","stream":"stdout","time":"2024-05-01T10:00:00.1Z"}}',
    "a program's JSON": '{{"level":"error","ts":"2024-05-01T10:00:00.1Z","msg":"{}"}}',
    "CRI": "2024-05-01T10:00:00.123456789Z stdout F {}",
    "CRI, cut": "2024-05-01T10:00:00.123456789Z stderr P {}",
    "a mail's subject": "Subject: [12.3] {}",
    "another header": "X-Probing-Reason: [12.3] {}",
    "a note": "note: [   12.345678] {}",
    "a reply": "Re: [12.3] {}",
}  # fmt: skip


@pytest.mark.parametrize("carrier", HANDED_ON)
@given(form=st.sampled_from(SORTS))
def test_what_a_container_prints_or_a_mail_quotes_is_nothing(carrier: str, form: str) -> None:
    """A runtime's record alone is a program's output; the same record around a line with the kernel's own time is the kernel's."""
    text = json.dumps(form)[1:-1] if "{{" in HANDED_ON[carrier] else form
    line = HANDED_ON[carrier].replace("{{", "{").replace("}}", "}").replace("{}", text)
    assert kind(line) == ""
    if "[12" in HANDED_ON[carrier] or "[ " in HANDED_ON[carrier]:
        return
    for inner in ("[   12.345678] ", "Jan 21 11:18:36 n1 kernel: ", "[Tue Jan 21 11:18:36 2025] "):
        assert kind(line.replace(text, inner + text)) == kind(form), inner


@given(form=st.sampled_from(SORTS), host=st.sampled_from(["n1", "gpu-a-12", "headnode", "dgx", "login.example.org", "DGX01"]))  # fmt: skip
def test_a_host_that_pdsh_asked_is_no_header(form: str, host: str) -> None:
    """Of a list of hosts every line is the kernel's."""
    assert kind(f"{host}: [   12.345678] {form}") == kind(form)
