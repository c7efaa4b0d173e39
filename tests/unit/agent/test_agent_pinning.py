"""Pinning of marked guests: the plan, its effects on real threads, and that they are undone."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.agent.__main__ import one_pass
from moxwell.agent.apply import Host
from moxwell.agent.host_files import HostFiles
from moxwell.agent.marked_guests import GuestThread, MarkedGuest, find_guests
from moxwell.agent.plan import HostCpus, governor_file, plan_changes

ONLINE = frozenset(range(8))
FLAT = HostCpus(ONLINE)  # no siblings, no NUMA nodes


def guest(vmid: int, cpus: tuple[int, ...] = (), emulator: tuple[int, ...] = ()) -> MarkedGuest:
    vcpus = tuple(GuestThread(vmid * 10 + n, n) for n in range(max(len(cpus), 2)))
    return MarkedGuest(
        vmid, vmid, cpus, emulator, (*vcpus, GuestThread(vmid * 10 + 9, -1)), ("01:00",)
    )


def test_each_vcpu_gets_its_cpu_and_the_emulator_runs_beside_them() -> None:
    found = plan_changes([guest(1, (2, 6), (3,))], FLAT, ONLINE, {"01:00": (40,)})
    assert found.threads == {10: {2}, 11: {6}, 19: {3}}
    assert found.files == {
        "proc/irq/40/smp_affinity_list": "2,6",
        governor_file(2): "performance",
        governor_file(6): "performance",
    }


def test_shared_guests_keep_off_pinned_cpus() -> None:
    found = plan_changes([guest(1, (0, 1)), guest(2)], FLAT, frozenset(), {})
    assert found.threads[20] == found.threads[29] == frozenset(range(2, 8))
    assert plan_changes([guest(2)], FLAT, frozenset(), {}).threads == {}


@pytest.mark.parametrize("cpus", [(0, 99), (0, 1)], ids=["missing CPU", "CPU of another guest"])
def test_a_guest_with_an_impossible_wish_is_shared(cpus: tuple[int, ...]) -> None:
    found = plan_changes([guest(1, (0, 2)), guest(2, cpus)], FLAT, frozenset(), {})
    assert found.threads[20] == ONLINE - {0, 2}


SMT = HostCpus(
    ONLINE,
    {cpu: frozenset({cpu % 4, cpu % 4 + 4}) for cpu in ONLINE},
    {0: frozenset({0, 1, 4, 5}), 1: frozenset({2, 3, 6, 7})},
)


def test_shared_guests_keep_off_siblings_and_beside_their_memory() -> None:
    bound = replace(guest(2), nodes={0: (0,), 1: (1,)})
    found = plan_changes([guest(1, (0, 1), (1,)), bound], SMT, frozenset(), {})
    rest = frozenset({2, 3, 6, 7})
    assert found.threads[19] == rest  # CPUs for the emulator that another guest got since
    assert found.threads[20] == rest  # node 0 has no CPU left
    assert found.threads[21] == found.threads[29] == rest
    alone = plan_changes([bound], SMT, frozenset(), {}).threads
    assert alone == {20: {0, 1, 4, 5}, 21: {2, 3, 6, 7}}


@settings(max_examples=200)
@given(
    st.lists(
        st.builds(
            guest,
            vmid=st.integers(1, 9),
            cpus=st.lists(st.integers(0, 9), max_size=3, unique=True).map(tuple),
            emulator=st.lists(st.integers(0, 9), max_size=2).map(tuple),
        ),
        max_size=5,
        unique_by=lambda g: g.vmid,
    )
)
def test_no_thread_of_another_runs_on_a_pinned_core(guests: list[MarkedGuest]) -> None:
    found = plan_changes(guests, SMT, frozenset(), {}).threads
    pinned: dict[int, set[int]] = {}
    for each in guests:
        mine = [found.get(t.number, ONLINE) for t in each.threads if t.vcpu >= 0]
        if each.cpus and mine[: len(each.cpus)] == [frozenset({cpu}) for cpu in each.cpus]:
            pinned[each.vmid] = set(each.cpus)
    every = [cpu for cpus in pinned.values() for cpu in cpus]
    assert len(every) == len(set(every))
    for each in guests:
        for thread in each.threads:
            cpus = found.get(thread.number, ONLINE)
            assert cpus
            if each.vmid not in pinned and SMT.online - SMT.whole_cores(every):
                assert not cpus & SMT.whole_cores(every)


class FakeThreads:
    """Affinities of threads; thread 9999 has ended."""

    def __init__(self) -> None:
        self.cpus: dict[int, set[int]] = {n: set(ONLINE) for n in (10, 11, 19, 20)}

    def get(self, thread: int) -> set[int]:
        if thread not in self.cpus:
            raise ProcessLookupError
        return self.cpus[thread]

    def set(self, thread: int, cpus: object) -> None:
        self.get(thread)
        self.cpus[thread] = set(cpus)  # type: ignore[call-overload]


def fake(tmp_path: Path) -> tuple[HostFiles, Path]:
    for cpu in range(8):
        path = tmp_path / governor_file(cpu)
        path.parent.mkdir(parents=True)
        path.write_text("powersave\n")
    return HostFiles(tmp_path), tmp_path / "record.json"


def test_what_was_changed_is_undone_also_after_a_restart(tmp_path: Path) -> None:
    files, record = fake(tmp_path)
    threads = FakeThreads()
    wanted = plan_changes([guest(1, (2, 6))], FLAT, ONLINE, {})
    Host(files, record, get_affinity=threads.get, set_affinity=threads.set).apply(wanted)
    assert threads.cpus[10] == {2}
    assert files.read(governor_file(2)) == "performance"
    again = Host(files, record, get_affinity=threads.get, set_affinity=threads.set)
    assert again.apply(wanted) == []  # nothing to do
    again.undo()
    assert threads.cpus[10] == threads.cpus[19] == set(ONLINE)
    assert files.read(governor_file(2)) == "powersave"


def test_guests_of_others_keep_off_pinned_cpus_if_the_operator_asks_for_it(tmp_path: Path) -> None:
    files, record = fake(tmp_path)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-7\n")
    for vmid, config in ((1, "#moxwell-cpus%3A 2,6\ntags: moxwell\n"), (2, "cores: 1\n")):
        for name, text in (
            (f"etc/pve/qemu-server/{vmid}.conf", config),
            (f"run/qemu-server/{vmid}.pid", f"{vmid}\n"),
            (f"proc/{vmid}/task/{vmid}0/comm", "CPU 0/KVM\n"),
        ):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    threads = FakeThreads()
    host = Host(files, record, get_affinity=threads.get, set_affinity=threads.set)
    one_pass(files, host)
    assert [threads.cpus[n] for n in (10, 20)] == [{2}, set(ONLINE)]
    one_pass(files, host, others=True)
    assert [threads.cpus[n] for n in (10, 20)] == [{2}, set(ONLINE - {2, 6})]
    (tmp_path / "run/qemu-server/1.pid").unlink()
    one_pass(files, host, others=True)
    assert threads.cpus[20] == ONLINE


def test_a_guest_that_is_gone_frees_its_cpus(tmp_path: Path) -> None:
    files, record = fake(tmp_path)
    threads = FakeThreads()
    host = Host(files, record, get_affinity=threads.get, set_affinity=threads.set)
    host.apply(plan_changes([guest(1, (2, 6))], FLAT, ONLINE, {}))
    for number in (10, 11, 19):
        del threads.cpus[number]
    host.apply(plan_changes([], FLAT, ONLINE, {}))
    assert files.read(governor_file(6)) == "powersave"


CONFIG = """#moxwell-cpus%3A 2,6 emulator=3
#notes of a person
cores: 2
hostpci0: 0000:41:00,pcie=1
numa: 1
numa0: cpus=0-1,hostnodes=1,memory=512,policy=bind
numa1: cpus=2,memory=512
tags: moxwell;web
[snapshot]
tags: other
"""


def test_marks_are_read_from_guest_configurations(tmp_path: Path) -> None:
    for vmid, config in (
        (100, CONFIG),
        (101, "cores: 1\ntags: other\n"),
        (102, "tags: moxwell\n"),
        (103, "cores: 1\naffinity: 0-1\n"),
    ):
        for name, text in (
            (f"etc/pve/qemu-server/{vmid}.conf", config),
            (f"run/qemu-server/{vmid}.pid", f"{vmid}7\n"),
            (f"proc/{vmid}7/task/{vmid}8/comm", "CPU 1/KVM\n"),
            (f"proc/{vmid}7/task/{vmid}7/comm", "kvm\n"),
        ):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    files = HostFiles(tmp_path)
    assert [g.vmid for g in find_guests(files, others=True)] == [100, 101, 102]
    first, second = find_guests(files)
    assert (first.vmid, first.cpus, first.emulator) == (100, (2, 6), (3,))
    assert first.devices == ("0000:41:00",)
    assert first.nodes == {0: (1,), 1: (1,)}
    assert first.threads == (GuestThread(1007, -1), GuestThread(1008, 1))
    assert (second.vmid, second.cpus) == (102, ())


@pytest.fixture
def vcpu_thread() -> Iterator[int]:
    """A thread of this process that is named as QEMU names a vCPU."""
    done, ready, found = threading.Event(), threading.Event(), list[int]()

    def run() -> None:
        found.append(threading.get_native_id())
        Path(f"/proc/self/task/{found[0]}/comm").write_text("CPU 0/KVM")
        ready.set()
        done.wait()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    yield found[0]
    done.set()
    thread.join()


def test_a_real_thread_is_pinned_and_freed(tmp_path: Path, vcpu_thread: int) -> None:
    before = os.sched_getaffinity(vcpu_thread)
    cpu = min(before)
    pid = os.getpid()
    config = tmp_path / "etc/pve/qemu-server/100.conf"
    pid_file = tmp_path / "run/qemu-server/100.pid"
    task = tmp_path / f"proc/{pid}/task/{vcpu_thread}/comm"
    online = tmp_path / "sys/devices/system/cpu/online"
    for path, text in (
        (config, f"#moxwell-cpus: {cpu}\ntags: moxwell\n"),
        (pid_file, str(pid)),
        (task, Path(f"/proc/{pid}/task/{vcpu_thread}/comm").read_text()),
        (online, Path("/sys/devices/system/cpu/online").read_text()),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = HostFiles(tmp_path)
    host = Host(files, tmp_path / "record.json")
    one_pass(files, host)
    assert os.sched_getaffinity(vcpu_thread) == {cpu}
    pid_file.unlink()
    one_pass(files, host)
    assert os.sched_getaffinity(vcpu_thread) == before


def test_the_agent_needs_the_standard_library_only(tmp_path: Path) -> None:
    import agent_package  # from tools

    tree = agent_package.lay_out(tmp_path / "tree", "1.0")
    modules = tree / "usr/lib/python3/dist-packages"
    command = [sys.executable, "-I", "-S", "-c"]
    code = f"import sys; sys.path.insert(0, {str(modules)!r}); import moxwell_agent.__main__ as m; "
    done = subprocess.run(
        [*command, code + "m.main(['show'])"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert '"cpus"' in done.stdout
