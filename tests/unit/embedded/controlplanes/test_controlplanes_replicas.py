"""Several API servers and members of etcd: the decisions."""

from pathlib import Path

import pytest

from moxwell.clock import SystemClock
from moxwell.config_file import InvalidConfig
from moxwell.embedded.controlplanes import addresses, etcd_settings
from moxwell.embedded.controlplanes.addresses import TenantAddresses
from moxwell.embedded.controlplanes.balancer.balancer import Backend, order
from moxwell.embedded.controlplanes.binaries.etcd_client import ListedMember
from moxwell.embedded.controlplanes.binaries.etcd_members import (
    AddMember,
    AwaitMember,
    EtcdMember,
    EtcdPorts,
    MemberChange,
    PromoteMember,
    RemoveMember,
    UpdateMember,
    next_change,
)
from moxwell.embedded.controlplanes.binaries.replica_hosts import with_replica_hosts
from moxwell.embedded.controlplanes.binaries.rolling import keep_rolling
from moxwell.embedded.controlplanes.binaries.tenant_folder import TenantRecord
from moxwell.embedded.controlplanes.interfaces import AddressDenied, Interfaces
from moxwell.embedded.controlplanes.supervision.supervisor import Program, Supervisor
from moxwell.runtime.key import Key
from moxwell.testing.processes import FakeProcesses

A, B, C = (EtcdMember(i, EtcdPorts(10 + i, 20 + i)) for i in range(3))


def listed(number: int, member: EtcdMember, *, name: str | None = None, learner: bool = False,
           url: str = "") -> ListedMember:  # fmt: skip
    found = member.name if name is None else name
    return ListedMember(number, found, url or member.peer_url, learner)


ONE, TWO, THREE = listed(1, A), listed(2, B), listed(3, C)
INITIAL = f"moxwell={A.peer_url},moxwell-1={B.peer_url}"


@pytest.mark.parametrize(
    ("wanted", "found", "lost", "moved", "expected"),
    [
        pytest.param((A,), (ONE,), (), (), None, id="one is one"),
        pytest.param((A, B, C), (ONE,), (), (), AddMember(B, INITIAL), id="the second is added"),
        pytest.param(
            (A, B, C), (ONE, listed(2, B, name="", learner=True)), (), (), AwaitMember(B),
            id="an added one has not started",
        ),
        pytest.param(
            (A, B, C), (ONE, listed(2, B, learner=True)), (), (), PromoteMember(2),
            id="a learner votes before the next is added",
        ),
        pytest.param(
            (A, B, C), (ONE, TWO), (), (),
            AddMember(C, f"{INITIAL},moxwell-2={C.peer_url}"), id="the third is added",
        ),
        pytest.param((A, B, C), (ONE, TWO, THREE), (), (), None, id="all vote"),
        pytest.param((A,), (ONE, TWO), (), (), RemoveMember(2, "moxwell-1"), id="a surplus one"),
        pytest.param(
            (A, B, C), (ONE, TWO, THREE), {"moxwell-1"}, (), RemoveMember(2, "moxwell-1"),
            id="one that lost its data",
        ),
        pytest.param(
            (A, B, C), (TWO, THREE), {"moxwell"}, (),
            AddMember(A, f"moxwell-1={B.peer_url},moxwell-2={C.peer_url},moxwell={A.peer_url}"),
            id="the first one is added again to the others",
        ),
        pytest.param((A,), (ONE,), {"moxwell"}, (), None, id="the only one is never removed"),
        pytest.param(
            (A, B, C), (ONE, TWO, listed(3, C, url="https://127.0.0.1:9")), (), (),
            UpdateMember(3, C.peer_url), id="another port",
        ),
        pytest.param(
            (A, B, C), (ONE, TWO, THREE), (), {"moxwell-1", "moxwell-2"},
            RemoveMember(2, "moxwell-1"), id="other addresses, one at a time",
        ),
        pytest.param(
            (A, B, C), (ONE, TWO), (), {"moxwell"},
            AddMember(C, f"{INITIAL},moxwell-2={C.peer_url}"), id="not before all are there",
        ),
        pytest.param(
            (A, B), (ONE, listed(2, B, name="", url="https://127.0.0.1:9")), (), (),
            RemoveMember(2, ""), id="one that never started and has another port now",
        ),
    ],
)  # fmt: skip
def test_the_next_change_of_the_members(
    wanted: tuple[EtcdMember, ...],
    found: tuple[ListedMember, ...],
    lost: set[str],
    moved: set[str],
    expected: MemberChange | None,
) -> None:
    assert next_change(wanted, found, lost, moved) == expected


def record(**changes: object) -> TenantRecord:
    ports = {"port": 1, "manager_port": 2, "scheduler_port": 3}
    return TenantRecord(uid="u", version="v1.36.3", **ports, **changes)  # type: ignore[arg-type]


def test_a_tenant_keeps_addresses_that_no_other_has() -> None:
    assert with_replica_hosts(record(), 1, []) == record()
    first = with_replica_hosts(record(), 2, [])
    assert first.replica_hosts == ("127.64.0.1", "127.64.0.2", "127.64.0.3")
    assert with_replica_hosts(first, 1, [first]) == first
    second = with_replica_hosts(record(), 2, [first])
    assert second.replica_hosts == ("127.64.0.4", "127.64.0.5", "127.64.0.6")
    grown = with_replica_hosts(first, 4, [first, second])
    assert grown.replica_hosts == (*first.replica_hosts, "127.64.0.7")


async def test_programs_are_restarted_one_after_the_other(tmp_path: Path) -> None:
    processes, answers = FakeProcesses(), {"a": "", "b": ""}
    supervisor = Supervisor(processes, SystemClock())

    def programs(flag: str) -> list[Program]:
        def probe(name: str) -> object:
            async def ask() -> str:
                return answers[name]

            return ask

        return [
            Program(name=n, argv=(flag,), folder=tmp_path, probe=probe(n))  # type: ignore[arg-type]
            for n in answers
        ]

    async def step(flag: str) -> tuple[list[bool], bool, list[str]]:
        states, current = await keep_rolling(supervisor, programs(flag), lambda: None)
        await SystemClock().sleep(0.05)
        return [s.healthy for s in states], current, [s.argv[0] for s in processes.started]

    await step("old")
    assert await step("old") == ([True, True], True, ["old", "old"])
    answers["a"] = "starting"
    assert await step("new") == ([False, True], False, ["old", "old", "new"])
    assert await step("new") == ([False, True], False, ["old", "old", "new"])  # a is not healthy
    answers["a"] = ""
    await SystemClock().sleep(0.6)
    assert await step("new") == ([True, False], True, ["old", "old", "new", "new"])
    assert await step("new") == ([True, True], True, ["old", "old", "new", "new"])
    assert processes.most == {"a": 1, "b": 1}
    for name in answers:
        await supervisor.stop(tmp_path / name)


async def test_programs_of_an_earlier_daemon_are_restarted_one_after_the_other(
    tmp_path: Path,
) -> None:
    processes = FakeProcesses()

    async def healthy() -> str:
        return ""

    def programs(flag: str) -> list[Program]:
        return [Program(name=n, argv=(flag,), folder=tmp_path, probe=healthy) for n in ("a", "b")]

    await keep_rolling(Supervisor(processes, SystemClock()), programs("old"), lambda: None)
    await SystemClock().sleep(0.05)
    later = Supervisor(processes, SystemClock())
    states, current = await keep_rolling(later, programs("new"), lambda: None)
    await SystemClock().sleep(0.05)
    assert (states[1].healthy, current) == (True, False)
    assert [spec.argv[0] for spec in processes.started] == ["old", "old", "new"]


def test_ready_servers_with_few_connections_come_first() -> None:
    a, b, c = Backend("a", 1, ready=True), Backend("b", 1), Backend("c", 1, ready=True)
    a.connections = 3
    assert [x.host for x in order([a, b, c])] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("127.0.0.1",)),
        ({"members": 3}, ("127.0.0.1",) * 3),
        ({"addresses": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}, ("10.0.0.1", "10.0.0.2", "10.0.0.3")),
    ],
)
def test_the_members_of_the_configuration(value: object, expected: tuple[str, ...]) -> None:
    assert etcd_settings.parse(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "must be a mapping"),
        ({"member": 3}, "unknown member"),
        ({"members": 2}, "1, 3 or 5 members"),
        ({"members": True}, "1, 3 or 5 members"),
        ({"members": 3, "addresses": []}, "not both"),
        ({"addresses": "10.0.0.1"}, "must be a list"),
        ({"addresses": ["10.0.0.1", "10.0.0.2"]}, "1, 3 or 5 members"),
        ({"addresses": ["pve1"]}, "not an IPv4 address"),
        ({"addresses": ["0.0.0.0"]}, "no member can listen"),
    ],
)
def test_members_that_cannot_be(value: object, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        etcd_settings.parse(value)


class Machine:
    """The addresses of a machine; ``why`` is the answer of ``ip``."""

    def __init__(self, why: str = "") -> None:
        self.has: set[str] = set()
        self.ran: list[str] = []
        self.why = why

    def run(self, words: object) -> str:
        assert isinstance(words, tuple)
        self.ran.append(" ".join(words))
        if not self.why:
            change = self.has.add if words[1] == "add" else self.has.discard
            change(words[2].partition("/")[0])
        return self.why

    def interfaces(self) -> Interfaces:
        return Interfaces(self.run, self.has.__contains__)


CONFIG = "control_planes: {addresses: [192.0.2.8-192.0.2.9], interface: eth0}"


def test_the_address_of_a_tenant_comes_and_goes(tmp_path: Path) -> None:
    machine = Machine()
    tenants = TenantAddresses(addresses.parse(CONFIG), (tmp_path,), machine.interfaces())
    host = tenants.host(tmp_path / "team" / "a")
    assert tenants.host(tmp_path / "team" / "a") == host
    assert machine.ran == [f"address add {host}/32 dev eth0"]
    other = addresses.parse(CONFIG.replace("8-192.0.2.9", "20"))
    tenants = TenantAddresses(other, (tmp_path,), machine.interfaces())
    assert tenants.host(tmp_path / "team" / "a") == "192.0.2.20"
    assert machine.has == {"192.0.2.20"}
    tenants.release(Key("team", "a"))
    tenants.release(Key("team", "a"))
    assert machine.has == set()
    assert len(machine.ran) == 4


def test_an_address_of_the_machine_is_never_removed(tmp_path: Path) -> None:
    machine = Machine()
    machine.has.update({"192.0.2.8", "192.0.2.9"})
    tenants = TenantAddresses(addresses.parse(CONFIG), (tmp_path,), machine.interfaces())
    tenants.host(tmp_path / "team" / "a")
    tenants.release(Key("team", "a"))
    assert machine.ran == []


def test_without_the_right_the_command_is_named(tmp_path: Path) -> None:
    machine = Machine("RTNETLINK answers: Operation not permitted")
    tenants = TenantAddresses(addresses.parse(CONFIG), (tmp_path,), machine.interfaces())
    with pytest.raises(AddressDenied, match=r"run `ip address add 192.0.2.\d/32 dev eth0` as"):
        tenants.host(tmp_path / "team" / "a")
    tenants.release(Key("team", "a"))
    assert len(machine.ran) == 1
