"""From a picture to records: the texts of machines, hosts and clusters."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moxwell.web import history
from moxwell.web.model import (
    ClusterView,
    ConditionView,
    GuestView,
    HostView,
    InfrastructureOverview,
    MachineView,
    NodeGroupView,
    RegionView,
)
from moxwell.web.phrasing import describe, short_name, stage_of, summarize_placement
from moxwell.web.views import Views

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = ConditionView(type="Ready", status="True", reason="Provisioned")


def not_ready(reason: str, message: str = "", status: str = "False") -> tuple[ConditionView, ...]:
    return (ConditionView(type="Ready", status=status, reason=reason, message=message),)


MACHINE = MachineView(
    namespace="t",
    name="demo-md0-0a98-x7k2p",
    cluster="demo",
    group="md0",
    region="r1",
    host="pve1",
    vmid=101,
    memory_mib=16384,
    cpus=4,
    node="n",
    node_ready=True,
    conditions=(READY,),
    template=9000,
)


@pytest.mark.parametrize(
    "machine, state, words",
    [
        pytest.param(MACHINE, "ready", "Done", id="settled"),
        pytest.param(
            replace(
                MACHINE,
                vmid=0,
                node_ready=False,
                move="wait: InsufficientResources",
                conditions=not_ready("InsufficientResources", "needs 64 GiB"),
            ),
            "waiting",
            "needs 64 GiB",
            id="no room: says what is missing",
        ),
        pytest.param(
            replace(MACHINE, node_ready=False, move="Clone", conditions=not_ready("Cloning")),
            "creating",
            "Cloning from template 9000",
            id="cloning",
        ),
        pytest.param(
            replace(MACHINE, node_ready=False, conditions=not_ready("WaitingForBootstrap")),
            "moving",
            "Booting on r1/pve1",
            id="booting",
        ),
        pytest.param(
            replace(MACHINE, node="", node_ready=False),
            "moving",
            "Joining",
            id="joining",
        ),
        pytest.param(
            replace(MACHINE, conditions=not_ready("HostDown", "host pve1 is down", "Unknown")),
            "unknown",
            "Unknown: host pve1 is down",
            id="a host is down: unknown, not failed",
        ),
        pytest.param(replace(MACHINE, deleting=True, pods=3), "deleting", "3 pods", id="draining"),
        pytest.param(
            replace(MACHINE, conditions=not_ready("Vanished", "guest 101 is not there")),
            "trouble",
            "Guest 101",
            id="vanished",
        ),
    ],
)
def test_every_state_has_its_sentence(machine: MachineView, state: str, words: str) -> None:
    said = describe(machine)
    assert said.state == state
    assert words in said.sentence
    assert said.next or state == "ready"


def test_a_short_name_is_the_group_and_the_last_part() -> None:
    assert short_name(MACHINE) == "md0-x7k2p"


def estate(now: datetime, *machines: MachineView, online: bool = True) -> InfrastructureOverview:
    return InfrastructureOverview(
        now=now,
        mode="lab",
        version="1",
        regions=(RegionView(name="r1"),),
        hosts=(HostView(region="r1", name="pve1", online=online, cpus=16, memory_mib=131072),),
        guests=(
            GuestView(
                region="r1",
                host="pve1",
                vmid=101,
                name="x",
                running=True,
                cpus=4,
                memory_mib=16384,
                memory_used_mib=8192,
            ),
            GuestView(
                region="r1", host="pve1", vmid=7, name="nas", running=True, cpus=2, memory_mib=32768
            ),
        ),
        clusters=(
            ClusterView(
                namespace="t",
                name="demo",
                ready=True,
                groups=(NodeGroupView(name="md0", replicas=1),),
            ),
        ),
        machines=machines,
    )


def test_a_guest_of_ours_is_told_from_a_strangers() -> None:
    records = Views().records(estate(NOW, MACHINE))
    ours, theirs = records["guest/r1/101"], records["guest/r1/7"]
    assert (ours["ours"], ours["short"], ours["mem_used"]) == (True, "md0-x7k2p", 0.5)
    assert (theirs["ours"], theirs["machine"]) == (False, None)
    assert records["region/r1"]["memory"]["promised"] == pytest.approx(0.375)


def test_a_silent_host_is_a_problem_and_its_guests_unknown() -> None:
    records = Views().records(estate(NOW, MACHINE, online=False))
    assert records["host/r1/pve1"]["state"] == "trouble"
    assert records["guest/r1/7"]["state"] == "unknown"
    assert records["guest/r1/7"]["mem_used"] is None
    assert "problem/host/r1/pve1" in records
    assert records["region/r1"]["without"] == ["pve1"]


def test_the_way_of_a_new_machine_is_written_down() -> None:
    views = Views()
    views.records(estate(NOW))
    born = replace(MACHINE, vmid=0, host="", node="", node_ready=False, conditions=(), created=NOW)
    stages = [
        born,
        replace(born, vmid=101, move="Clone", conditions=not_ready("Cloning")),
        replace(born, vmid=101, conditions=not_ready("WaitingForBootstrap")),
        MACHINE,
    ]
    for second, machine in enumerate(stages, 1):
        records = views.records(estate(NOW + timedelta(seconds=10 * second), machine))
    line = records["machine/t/demo-md0-0a98-x7k2p"]["timeline"]
    assert [row["step"] for row in line] == ["Claim", "Clone", "Configure", "Boot", "Join"]
    assert all(row["start"] and row["end"] for row in line)
    said = [r["sentence"] for k, r in records.items() if k.startswith("event/")]
    assert "Joined as node, Ready" in said


BORN = replace(MACHINE, vmid=0, host="", node="", node_ready=False, conditions=(), created=NOW)
CLONING = replace(MACHINE, node_ready=False, move="Clone", conditions=not_ready("Cloning"))
SILENT = replace(CLONING, conditions=not_ready("RegionUnreachable", "r1 is silent", "Unknown"))
AWAY = replace(MACHINE, node_ready=False)
WHOLE = ["Requested", "VMID 101", "Cloned from", "Configured", "Booted on", "Joined as node"]
LOOKS = {
    "every stage is seen": ([BORN, CLONING, MACHINE], WHOLE),
    "all stages but the first pass between two looks": ([BORN, MACHINE], WHOLE),
    "it is settled when it is first seen": ([MACHINE], WHOLE),
    "a silent region ends no stage": (
        [BORN, CLONING, SILENT],
        ["Requested", "VMID 101", "Unknown: r1 is silent"],
    ),
    "it is heard of again": (
        [CLONING, SILENT, CLONING, MACHINE],
        [*WHOLE[:2], "Unknown: r1 is silent", *WHOLE[2:]],
    ),
    "a node that was away for a while joins no second time": (
        [MACHINE, AWAY, MACHINE],
        [*WHOLE, "Ready again"],
    ),
    "a settled machine of a region that was silent": (
        [MACHINE, SILENT, MACHINE],
        [*WHOLE, "Unknown: r1 is silent", "Ready again"],
    ),
}


@pytest.mark.parametrize(("looks", "said"), LOOKS.values(), ids=LOOKS)
def test_the_feed_tells_what_passed_between_two_looks(
    looks: list[MachineView], said: list[str]
) -> None:
    views = Views()
    views.records(estate(NOW))
    for second, machine in enumerate(looks, 1):
        views.records(estate(NOW + timedelta(seconds=second), machine))
    lines = [entry.sentence for entry in views.history.events]
    assert len(lines) == len(said)
    assert all(line.startswith(start) for line, start in zip(lines, said, strict=True)), lines


def test_a_deleted_machine_has_the_names_that_it_had() -> None:
    views = Views()
    for second, machines in enumerate(((), (MACHINE,), ())):
        views.records(estate(NOW + timedelta(seconds=second), *machines))
    first, last = views.history.events[0], views.history.events[-1]
    assert last.sentence.startswith("Deleted")
    assert (last.name, last.cluster) == (first.name, first.cluster) != ("", "")


def test_what_was_there_before_is_no_news() -> None:
    records = Views().records(estate(NOW, MACHINE))
    assert not [k for k in records if k.startswith("event/")]
    assert records["machine/t/demo-md0-0a98-x7k2p"]["timeline"] == []


def test_a_machine_without_an_id_is_being_claimed() -> None:
    assert stage_of(replace(MACHINE, vmid=0)) == "Claim"


def test_an_outdated_machine_makes_a_rollout() -> None:
    records = Views().records(estate(NOW, replace(MACHINE, outdated=True)))
    assert records["cluster/t/demo"]["state"] == "moving"
    assert "problem/rollout/t/demo" in records
    assert records["cluster/t/demo"]["rollout_since"] == NOW
    assert records["machine/t/demo-md0-0a98-x7k2p"]["mark"] == "old"


def test_a_rollout_began_when_it_was_first_seen_and_ends() -> None:
    views, old = Views(), replace(MACHINE, outdated=True)
    looks = [MACHINE, old, old, MACHINE]
    began = [
        views.records(estate(NOW + timedelta(seconds=s), machine))["cluster/t/demo"]
        for s, machine in enumerate(looks)
    ]
    first = NOW + timedelta(seconds=1)
    assert [c["rollout_since"] for c in began] == [None, first, first, None]


def test_twelve_clusters_look_different() -> None:
    clusters = tuple(ClusterView(namespace="t", name=f"c{i:02}") for i in range(12))
    records = Views().records(replace(estate(NOW), clusters=clusters))
    looks = {(r["hue"], r["pattern"]) for k, r in records.items() if k.startswith("cluster/")}
    assert len(looks) == 12


PLACES = {
    "one line for all hosts": (
        "no host has room: a/p1: needs 204800 MiB memory, 122880 MiB are free | "
        "a/p2: needs 204800 MiB memory, 143360 MiB are free",
        "200 GiB on one host; most is free on a/p2: 140 GiB",
    ),
    "a region that does not answer": (
        "no host has room: a/p1: needs 204800 MiB memory, 122880 MiB are free | "
        "region b does not answer: no URL answers; region c does not answer: refused",
        "200 GiB on one host; most is free on a/p1: 120 GiB; region b does not answer; "
        "region c does not answer",
    ),
    "a host that lacks something else": (
        "no host has room: a/p1: needs 8 MiB memory, 4 MiB are free | a/p2: offline",
        "no host has room: a/p1: needs 8 MiB memory, 4 MiB are free | a/p2: offline",
    ),
    "another reason is shown as it is": ("no template v1.35.0", "no template v1.35.0"),
    "a long one ends somewhere": ("word " * 60, ("word " * 31) + "word …"),
}


@pytest.mark.parametrize(("message", "said"), PLACES.values(), ids=PLACES)
def test_why_there_is_no_place_fits_on_a_line(message: str, said: str) -> None:
    assert summarize_placement(message) == said


def test_stages_of_the_journal_never_go_back() -> None:
    order = ["", "Claim", "Clone", "Configure", "Boot", "Join"]
    for at, one in enumerate(order[1:], 1):
        for other in order[1:]:
            assert history.is_later(other, one) is (order.index(other) > at)
        assert history.is_later("", one)
    assert not history.is_later("", "")


def test_the_times_of_stages_that_pass_between_two_overviews_are_not_invented() -> None:
    views = Views()
    views.records(estate(NOW))
    booting = replace(MACHINE, node_ready=False, conditions=not_ready("WaitingForBootstrap"))
    for second, machine in ((0, BORN), (10, CLONING), (50, booting), (60, MACHINE)):
        records = views.records(estate(NOW + timedelta(seconds=second), machine))
    assert views.history.dump_durations() == {"r1": {"Claim": [10.0]}}
    line = records["machine/t/demo-md0-0a98-x7k2p"]["timeline"]
    assert [(row["step"], row["observed"], row["at_most"]) for row in line] == [
        ("Claim", True, False),
        ("Clone", True, True),
        ("Configure", False, False),
        ("Boot", True, True),
        ("Join", False, False),
    ]


def test_a_cluster_is_ready_again_when_its_last_machine_is_replaced() -> None:
    views = Views()
    views.records(estate(NOW, MACHINE))
    later = NOW + history.SETTLE * 2
    for second, (machine, version) in enumerate(
        [(MACHINE, "v1"), (replace(MACHINE, outdated=True), "v2"), (MACHINE, "v2")]
    ):
        seen = estate(later + timedelta(seconds=second), machine)
        views.records(replace(seen, clusters=(replace(seen.clusters[0], version=version),)))
    said = [(e.at, e.sentence) for e in views.history.events]
    assert said == [(later + timedelta(seconds=2), "Ready, v2")]
