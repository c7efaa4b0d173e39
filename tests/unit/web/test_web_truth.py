"""The dashboard shows what is known: one card per cause, unknown is not ready, nothing invented."""

import re
from dataclasses import replace
from datetime import timedelta
from importlib import resources

import pytest

from moxwell.web.cluster_looks import HUES, LOOKS, PATTERNS, ClusterLook, ClusterLooks, preferred
from moxwell.web.model import (
    ClusterView,
    InfrastructureOverview,
    MachineView,
    NumaNodeView,
    RegionView,
    StorageView,
    VolumeView,
)
from moxwell.web.phrasing import describe
from moxwell.web.views import Views
from support.dashboard_overview import NOW, machine, overview, waiting

THREE = (machine(1), machine(2, "r2"), machine(3, "r2"))
CAUSES = {
    "nothing is wrong": (overview(*THREE), []),
    "a lost region is one card": (
        overview(*THREE, lost=("r2",)),
        ["Region r2 does not answer"],
    ),
    "two lost regions are two": (
        overview(*THREE, lost=("r1", "r2")),
        ["Region r1 does not answer", "Region r2 does not answer"],
    ),
    "a lost host is one card, without its machines": (
        overview(*THREE, down=("r2-h2",)),
        ["Host r2/r2-h2 does not answer"],
    ),
    "machines that wait for the same are one card": (
        overview(
            waiting(1, "InsufficientResources", "no room: a"),
            waiting(2, "InsufficientResources", "no room: b"),
        ),
        ["2 machines of demo wait for a host"],
    ),
    "different causes are different cards": (
        overview(waiting(1, "InsufficientResources"), waiting(2, "QuotaExceeded", "full")),
        ["md0-1 of demo waits for a host", "md0-2 of demo waits"],
    ),
    "a region that was not read yet is no problem": (
        overview(regions=(RegionView(name="r1", reachable=False, read=False),)),
        [],
    ),
}


@pytest.mark.parametrize(("seen", "titles"), CAUSES.values(), ids=CAUSES)
def test_one_card_for_each_cause(seen: InfrastructureOverview, titles: list[str]) -> None:
    records = Views().records(seen)
    assert [r["title"] for k, r in records.items() if k.startswith("problem/")] == titles


def test_a_machine_that_is_unknown_is_not_counted_as_ready() -> None:
    records = Views().records(overview(*THREE, lost=("r2",)))
    cluster = records["cluster/t/demo"]
    assert (cluster["ready"], cluster["unknown"], cluster["want"]) == (1, 2, 3)
    assert (cluster["state"], cluster["sentence"]) == ("unknown", "2 of 3 machines unknown")
    group = cluster["groups"][0]
    assert (group["ready"], group["unknown"], group["then"]) == (1, 2, "Wait for 2 unknown")
    assert records["machine/t/demo-md0-2"]["sentence"] == "Unknown: region r2 does not answer"


ROLLOUT = tuple(machine(n, outdated=n < 3) for n in range(4))  # three are wanted
READY = {
    "a new machine is there before an old one goes": (ROLLOUT, (), (4, 0, 4, 3)),
    "a machine that is being deleted is not ready": (
        (replace(ROLLOUT[0], deleting=True), *ROLLOUT[1:]), (), (3, 0, 3, 3),
    ),
    "the unknown ones are of the same number": (
        (*ROLLOUT[:2], *(replace(m, region="r2") for m in ROLLOUT[2:])), ("r2",), (2, 2, 4, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("machines", "lost", "figures"), READY.values(), ids=READY)
def test_never_are_more_nodes_ready_than_there_are(
    machines: tuple[MachineView, ...], lost: tuple[str, ...], figures: tuple[int, ...]
) -> None:
    seen = overview(*machines, lost=lost)
    group = replace(seen.clusters[0].groups[0], replicas=3)
    records = Views().records(replace(seen, clusters=(replace(seen.clusters[0], groups=(group,)),)))
    for found in (records["cluster/t/demo"], records["cluster/t/demo"]["groups"][0]):
        assert tuple(found[k] for k in ("ready", "unknown", "total", "want")) == figures
    assert records["problem/rollout/t/demo"]["count"] == "1 of 3"


def test_a_cluster_of_which_all_machines_wait_waits() -> None:
    seen = overview(machine(1), waiting(2, "InsufficientResources"))
    busy = replace(seen.clusters[0], ready=False)
    assert Views().records(replace(seen, clusters=(busy,)))["cluster/t/demo"]["state"] == "waiting"


def test_volumes_of_a_lost_region_are_not_called_attached() -> None:
    volumes = tuple(replace(v, guest="demo-md0-1") for v in VOLUMES[:2])
    lost = replace(volumes[1], storage="r2/nfs")
    records = Views().records(overview(*THREE, volumes=(volumes[0], lost), lost=("r2",)))
    assert records["cluster/t/demo"]["volumes"] == "1 attached, 1 unknown"


def test_the_time_of_the_next_attempt_is_left_out_because_it_passes() -> None:
    silent = waiting(1, "QuotaExceeded", "region r1 does not answer; next attempt in 17 s")
    assert "17" not in describe(silent).sentence


def test_a_lost_region_is_one_event_and_its_return_too() -> None:
    views = Views()
    for seconds, lost in enumerate([(), ("r2",), ("r2",), ()]):
        seen = overview(*THREE, lost=lost, now=NOW + timedelta(seconds=seconds))
        records = views.records(seen)
        moves = [k for k in records if k.startswith("move/")]
        assert moves == (["move/lost/r2"] if lost else [])
    said = [(e.name, e.sentence) for e in views.history.events]
    assert said == [("r2", "Does not answer"), ("r2", "Answers again")]


def test_figures_of_a_lost_region_are_not_numbers() -> None:
    lost = Views().records(overview(*THREE, lost=("r2",)))["region/r2"]
    assert (lost["reachable"], lost["cpu"]["promised"], lost["without"]) == (False, None, [])


NUMA = (
    NumaNodeView(number=0, cpus=8, memory_mib=65536),
    NumaNodeView(number=1, cpus=8, memory_mib=65536),
)


def test_numa_nodes_are_shown_only_with_data_of_the_host_agent() -> None:
    seen = overview(machine(1, numa=(1,)), machine(2, host="r1-h1"))
    hosts = {h.name: h for h in seen.hosts}
    plain = Views().records(seen)["host/r1/r1-h1"]["blocks"]
    assert [(b["label"], b["columns"]) for b in plain] == [("", 2)]
    known = replace(seen, hosts=(replace(hosts["r1-h1"], numa=NUMA),))
    records = Views().records(known)
    blocks = records["host/r1/r1-h1"]["blocks"]
    assert [(b["label"], b["cores"], b["bound_mib"]) for b in blocks] == [
        ("numa 0", 8, 0), ("numa 1", 8, 16384),
    ]  # fmt: skip
    assert (records["guest/r1/101"]["block"], records["guest/r1/101"]["bound"]) == (1, True)
    assert records["guest/r1/102"]["bound"] is False


PHASES = {
    "its ProxmoxMachine does not exist": (
        machine(1, vmid=0, host="", node="", node_ready=False, conditions=(), observed=False),
        ("waiting", "Claim", "Claim a host and a VMID"),
    ),
    "it waits for its cluster": (
        waiting(1, "WaitingForClusterInfrastructure", "not ready"),
        ("waiting", "Claim", "Claim a host and a VMID"),
    ),
    "its tenant has no quota left": (
        waiting(1, "QuotaExceeded", "4 of 4 vCPU"),
        ("waiting", "Claim", "Claim a host and a VMID"),
    ),
    "it has a VMID, and no guest yet": (
        machine(1, host="", node="", node_ready=False, conditions=()),
        ("creating", "Clone", "Configure the guest"),
    ),
    "its guest was stopped": (
        replace(waiting(1, "Stopped", "guest 101 is stopped"), vmid=101, host="h"),
        ("trouble", "Configure", "Be replaced"),
    ),
    "its node does not report": (
        machine(1, node_ready=None),
        ("unknown", "", "Check again"),
    ),
    "it is deleted before it had a guest": (
        replace(waiting(1, "Deleting"), deleting=True),
        ("deleting", "", "Be deleted"),
    ),
}


@pytest.mark.parametrize(("seen", "said"), PHASES.values(), ids=PHASES)
def test_phases_of_machines(seen: MachineView, said: tuple[str, str, str]) -> None:
    text = describe(seen)
    assert (text.state, text.stage, text.next) == said


def test_only_machines_that_lack_a_host_are_in_the_tray() -> None:
    records = Views().records(overview(waiting(1, "InsufficientResources"), waiting(2, "Paused")))
    assert [k for k in records if k.startswith("waiting/")] == ["waiting/t/demo-md0-1"]


def cluster(name: str, age: int = 0) -> ClusterView:
    return ClusterView(namespace="t", name=name, created=NOW - timedelta(hours=age))


def test_a_cluster_keeps_its_colour_when_others_come_and_go() -> None:
    names = [f"c{i}" for i in range(LOOKS)]
    alone = {n: ClusterLooks().assign([cluster(n)])[f"t/{n}"] for n in names}
    looks = ClusterLooks()
    before: dict[str, ClusterLook] = {}
    for count in [*range(1, LOOKS + 1), *range(LOOKS, 0, -1)]:
        now = looks.assign(map(cluster, names[:count]))
        assert len(set(now.values())) == count  # all different
        assert all(now[key] == before[key] for key in before.keys() & now.keys())
        before = now
    assert before["t/c0"] == alone["c0"]
    number = preferred("t/c0")
    assert alone["c0"] == ClusterLook(number % HUES, number // HUES)


def test_of_two_clusters_with_one_look_the_older_keeps_it() -> None:
    first = "a"
    same = next(n for n in map(str, range(999)) if preferred(f"t/{n}") == preferred(f"t/{first}"))
    looks = ClusterLooks().assign([cluster(same, age=1), cluster(first, age=2)])
    assert looks["t/a"] == ClusterLooks().assign([cluster(first)])["t/a"]
    assert looks["t/a"] != looks[f"t/{same}"]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def themes() -> dict[str, dict[str, str]]:
    text = (resources.files("moxwell.web") / "static" / "css" / "tokens.css").read_text()
    light, dark = text.partition(':root[data-theme="dark"]')[::2]
    pattern = re.compile(r"--([a-z0-9-]+): (#[0-9a-f]{6})")
    return {"light": dict(pattern.findall(light)), "dark": dict(pattern.findall(dark))}


@pytest.mark.parametrize("theme", themes().values(), ids=themes())
def test_colours_have_contrast(theme: dict[str, str]) -> None:
    assert PATTERNS == 4  # classes p0 to p3 of the style sheet
    for hue in range(HUES):
        edge, tile, used = (theme[f"c{hue}{part}"] for part in ("", "-t", "-u"))
        assert min(contrast(edge, g) for g in (tile, used, theme["surface"])) >= 3
        assert min(contrast(theme["ink"], g) for g in (tile, used)) >= 4.5
        assert min(contrast(theme["ink-2"], g) for g in (tile, used)) >= 4.5
    for ground in ("bg", "surface", "sunken"):
        assert min(contrast(theme[i], theme[ground]) for i in ("ink", "ink-2", "ink-3")) >= 4.5


STORES = (
    StorageView(region="r1", name="ceph", hosts=3, active_hosts=3, total_mib=100, used_mib=50),
    StorageView(region="r1", name="nfs", hosts=3, active_hosts=2),
    StorageView(region="r1", name="iso", hosts=1, active_hosts=0),
    StorageView(region="r1", name="lvm", host="r1-h1"),
    StorageView(region="r2", name="zfs", host="r2-h2"),
)
VOLUMES = (
    VolumeView(
        name="pvc-1", cluster="t/demo", claim="d/data", storage="r1/ceph", size_mib=20,
        guest="demo-md0-1",
    ),
    VolumeView(
        name="pvc-2", cluster="t/demo", claim="d/log", storage="r1/ceph", size_mib=5,
        guest="demo-md0-1", state="attaching", message="Attaching to demo-md0-1",
    ),
    VolumeView(name="pvc-3", cluster="t/demo", claim="d/old", storage="r2/r2-h2/zfs", size_mib=1),
)  # fmt: skip


def test_all_storages_are_shown_with_what_they_hold() -> None:
    seen = overview(*THREE, lost=("r2",), storages=STORES, volumes=VOLUMES)
    records = Views().records(seen)
    shown = {k: (r["state"], r["volumes"]) for k, r in records.items() if k.startswith("store/")}
    assert shown == {
        "store/r1/ceph": ("ready", 2),
        "store/r1/nfs": ("waiting", 0),
        "store/r1/iso": ("trouble", 0),
        "store/r1/r1-h1/lvm": ("ready", 0),
        "store/r2/r2-h2/zfs": ("unknown", 1),
    }
    assert records["volume/t/demo/pvc-3"]["lost"] == "r2"


def test_volumes_are_shown_on_their_guests() -> None:
    records = Views().records(overview(*THREE, volumes=VOLUMES))
    guest = records["guest/r1/101"]
    assert (guest["volumes"], guest["volumes_mib"]) == (2, 25)
    assert (guest["state"], guest["sentence"]) == ("attaching", "Attaching log")
    assert records["guest/r2/102"]["volumes"] == 0
    assert len(records["machine/t/demo-md0-1"]["volumes"]) == 2
