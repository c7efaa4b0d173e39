"""Placement as a table of inputs, and properties that hold for any input."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.scheduling.inventory_model import (
    GIB,
    MIB,
    CandidateHost,
    HostCapabilities,
    HostKey,
    HostStorage,
    PendingGuest,
    PlacedReplica,
    Template,
)
from moxwell.scheduling.placement import choose_host
from moxwell.scheduling.placement_model import OvercommitLimits, PlacementRequest


def key(name: str, region: str = "r1") -> HostKey:
    return HostKey(region, name)


def host(name: str, region: str = "r1", **more: object) -> CandidateHost:
    stores = {
        "lvm": HostStorage("lvm", 100 * GIB),
        "ceph": HostStorage("ceph", 500 * GIB, shared=True),
    }
    made = CandidateHost(key(name, region), cpus=16, memory_bytes=64 * GIB, stores=stores)
    return replace(made, **more)  # type: ignore[arg-type]


SHARED = Template(key("a"), 9000, "tpl", storages=frozenset({"ceph"}), shared=True)
LOCAL_A = Template(key("a"), 9001, "tpl", storages=frozenset({"lvm"}), disk_bytes=10 * GIB)
LOCAL_B = replace(LOCAL_A, key=key("b"), vmid=9002)
REQUEST = PlacementRequest(cpus=4, memory_bytes=8 * GIB, disk_bytes=20 * GIB)


@pytest.mark.parametrize(
    "wanted, hosts, replicas, chosen",
    [
        pytest.param(REQUEST, [host("a"), host("b")], [], "a", id="equal hosts: by name"),
        pytest.param(
            REQUEST, [host("a", memory_taken=32 * GIB), host("b")], [], "b", id="the emptier host"
        ),
        pytest.param(
            REQUEST, [host("a", online=False), host("b")], [], "b", id="a dead host is out"
        ),
        pytest.param(
            REQUEST,
            [host("a", capabilities=HostCapabilities(maintenance=True)), host("b")],
            [],
            "b",
            id="maintenance",
        ),
        pytest.param(
            REQUEST,
            [host("a"), host("b")],
            [PlacedReplica(key("a"))],
            "b",
            id="replicas are spread",
        ),
        pytest.param(
            replace(REQUEST, spread="Ignore"),
            [host("a", zone="z"), host("b", zone="y", cpus_taken=8)],
            [],
            "a",
            id="load decides when nothing else does",
        ),
        pytest.param(
            replace(REQUEST, hosts=frozenset({"b"})), [host("a"), host("b")], [], "b", id="allowed"
        ),
        pytest.param(replace(REQUEST, target="b"), [host("a"), host("b")], [], "b", id="pinned"),
        pytest.param(
            replace(REQUEST, zone="z2"),
            [host("a", zone="z1"), host("b", zone="z2")],
            [],
            "b",
            id="the failure domain asked for",
        ),
        pytest.param(
            REQUEST,
            [host("a", zone="z1"), host("b", zone="z1"), host("c", zone="z2", cpus_taken=15)],
            [PlacedReplica(key("a"), "z1")],
            "c",
            id="zones are spread before hosts",
        ),
        pytest.param(
            replace(REQUEST, limits=OvercommitLimits(cpu_percent=100)),
            [host("a", cpus_taken=14), host("b", cpus_taken=8, memory_taken=40 * GIB)],
            [],
            "b",
            id="CPU limit",
        ),
    ],
)
def test_choice(
    wanted: PlacementRequest,
    hosts: list[CandidateHost],
    replicas: list[PlacedReplica],
    chosen: str,
) -> None:
    placed = choose_host(wanted, hosts, templates=[SHARED], replicas=replicas)
    assert placed.chosen is not None
    assert placed.chosen.key.name == chosen


@pytest.mark.parametrize(
    "wanted, one, sentence",
    [
        pytest.param(
            REQUEST,
            host("a", memory_taken=60 * GIB),
            "needs 8192 MiB memory, 4096 MiB are free",
            id="memory",
        ),
        pytest.param(
            replace(REQUEST, cpus=32),
            host("a"),
            "needs 32 CPUs, the host has 16",
            id="too many CPUs",
        ),
        pytest.param(
            replace(REQUEST, limits=OvercommitLimits(cpu_percent=200)),
            host("a", cpus_taken=30),
            "needs 4 CPUs, 2 are free",
            id="overcommit limit",
        ),
        pytest.param(
            replace(REQUEST, storage="lvm", disk_bytes=200 * GIB),
            host("a"),
            "needs 200 GiB on storage lvm, 100 GiB are free",
            id="storage space",
        ),
        pytest.param(
            replace(REQUEST, extra_bytes={"ssd": GIB}),
            host("a"),
            "storage ssd does not exist there",
            id="ssd",
        ),
        pytest.param(
            replace(REQUEST, spread="Require"),
            host("a"),
            "already runs 1 of these replicas, and they must be on different hosts",
            id="anti-affinity",
        ),
    ],
)
def test_no_room_names_what_is_missing_where(
    wanted: PlacementRequest, one: CandidateHost, sentence: str
) -> None:
    placed = choose_host(wanted, [one], templates=[SHARED], replicas=[PlacedReplica(key("a"))])
    assert placed.chosen is None
    assert f"r1/a: {sentence}" in placed.sentence()


def test_guests_in_flight_count() -> None:
    flights = [PendingGuest(key("a"), 4, 60 * GIB)]
    placed = choose_host(
        replace(REQUEST, spread="Ignore"), [host("a")], templates=[SHARED], pending=flights
    )
    assert "4096 MiB are free" in placed.sentence()


def test_disk_in_flight_on_shared_storage_counts_on_every_host() -> None:
    flights = [PendingGuest(key("a"), 1, MIB, "ceph", 490 * GIB)]
    placed = choose_host(REQUEST, [host("b")], templates=[SHARED], pending=flights)
    assert "needs 20 GiB on storage ceph, 10 GiB are free" in placed.sentence()


def test_local_template_prefers_its_own_hosts() -> None:
    placed = choose_host(REQUEST, [host("b"), host("c")], templates=[LOCAL_A, LOCAL_B])
    assert placed.chosen is not None
    assert (placed.chosen.key.name, placed.chosen.template, placed.chosen.migrate_after_clone) == (
        "b",
        LOCAL_B,
        False,
    )


def test_local_template_elsewhere_is_a_detour() -> None:
    placed = choose_host(REQUEST, [host("c")], templates=[LOCAL_A])
    assert placed.chosen is not None
    assert placed.chosen.migrate_after_clone
    assert "migrated" in str(placed.chosen)


@pytest.mark.parametrize(("storage", "migrates"), [("lvm", True), ("ceph", False), ("", False)])
def test_a_copy_on_a_local_storage_of_another_host_is_migrated(
    storage: str, migrates: bool
) -> None:
    """Proxmox refuses to clone to another host if the storage of the copy is not shared."""
    placed = choose_host(replace(REQUEST, storage=storage), [host("b")], templates=[SHARED])
    assert placed.chosen is not None
    assert placed.chosen.migrate_after_clone is migrates


def test_linked_clone_stays_with_its_template() -> None:
    placed = choose_host(replace(REQUEST, linked=True), [host("c")], templates=[LOCAL_A])
    assert "a linked clone needs the template here; it is on r1/a" in placed.sentence()


def test_same_host_name_in_two_regions_is_no_problem() -> None:
    hosts = [host("pve", "r1", memory_taken=64 * GIB), host("pve", "r2")]
    templates = [replace(SHARED, key=key("pve", r)) for r in ("r1", "r2")]
    placed = choose_host(REQUEST, hosts, templates=templates)
    assert placed.chosen is not None
    assert placed.chosen.key == key("pve", "r2")


def test_a_region_without_the_template_says_so() -> None:
    placed = choose_host(REQUEST, [host("x", "r2")], templates=[SHARED])
    assert "r2/x: no matching template in this region" in placed.sentence()


def test_explanation_has_a_line_for_each_host_chosen_first() -> None:
    placed = choose_host(REQUEST, [host("a", online=False), host("b")], templates=[SHARED])
    assert placed.explain()[0].endswith("<- chosen")
    assert placed.explain()[1] == "r1/a: host is offline"


hosts_of = st.lists(
    st.builds(
        host,
        name=st.sampled_from("abcdef"),
        region=st.sampled_from(["r1", "r2"]),
        online=st.booleans(),
        memory_taken=st.integers(0, 80).map(lambda n: n * GIB),
        cpus_taken=st.integers(0, 40),
    ),
    max_size=8,
    unique_by=lambda h: h.key,
)


@settings(deadline=None)
@given(hosts=hosts_of, spread=st.sampled_from(["Prefer", "Require", "Ignore"]))
def test_what_is_chosen_really_fits(hosts: list[CandidateHost], spread: str) -> None:
    wanted = replace(REQUEST, spread=spread, limits=OvercommitLimits(cpu_percent=200))
    placed = choose_host(wanted, hosts, templates=[SHARED])
    fitting = [
        h
        for h in hosts
        if h.online
        and h.key.region == "r1"
        and h.memory_bytes - h.memory_taken >= wanted.memory_bytes
        and h.cpus * 2 - h.cpus_taken >= wanted.cpus
    ]
    assert (placed.chosen is not None) == bool(fitting)
    if placed.chosen:
        assert placed.chosen.key in {h.key for h in fitting}


@settings(deadline=None)
@given(hosts=hosts_of, dead=st.sampled_from("abcdef"))
def test_a_dead_host_removes_only_itself(hosts: list[CandidateHost], dead: str) -> None:
    before = {v.key: v.fits for v in choose_host(REQUEST, hosts, templates=[SHARED]).verdicts}
    died = [replace(h, online=False) if h.key.name == dead else h for h in hosts]
    after = choose_host(REQUEST, died, templates=[SHARED]).verdicts
    assert all(v.fits == before[v.key] for v in after if v.key.name != dead)


@settings(deadline=None)
@given(hosts=hosts_of, random=st.randoms())
def test_the_order_of_hosts_does_not_matter(hosts: list[CandidateHost], random: object) -> None:
    shuffled = list(hosts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = choose_host(REQUEST, hosts, templates=[SHARED])
    assert first == choose_host(REQUEST, shuffled, templates=[SHARED])


FITTED = HostCapabilities(bridges=frozenset({"vmbr0"}), mappings=frozenset({"gpu"}))


@pytest.mark.parametrize(
    "wanted, capabilities, why",
    [
        pytest.param({"bridges": {"vmbr0"}}, FITTED, (), id="the bridge is there"),
        pytest.param(
            {"bridges": {"vmbr7"}},
            FITTED,
            ("host a has no bridge vmbr7 that the token may use",),
            id="a bridge that is missing",
        ),
        pytest.param({"bridges": {"vmbr7"}}, HostCapabilities(), (), id="unknown"),
        pytest.param(
            {"other_bridges": {"vmbr0"}},
            replace(FITTED, bridge="vmbr9"),
            ("host a has no bridge vmbr9 that the token may use",),
            id="the zone names a bridge that is missing",
        ),
        pytest.param(
            {"mappings": {"fpga", "gpu"}},
            FITTED,
            ("host a has no device mapped as fpga",),
            id="a PCI mapping without a device there",
        ),
        pytest.param(
            {"firewall_groups": {"kube", "web"}},
            replace(FITTED, firewall_groups=frozenset({"web"})),
            ("region r1 has no firewall group kube",),
            id="a firewall group that is missing",
        ),
        pytest.param({"firewall_groups": {"kube"}}, FITTED, (), id="unknown firewall groups"),
        pytest.param(
            {"ha_groups": {"replicas"}},
            replace(FITTED, ha_groups=frozenset()),
            ("region r1 has no HA group or rule replicas",),
            id="an HA group that is missing",
        ),
        pytest.param(
            {"ha_groups": {"replicas"}},
            replace(FITTED, ha_groups=frozenset({"replicas"})),
            (),
            id="an HA group that is there",
        ),
        pytest.param(
            {"formats": {("lvm", "qcow2"), ("lvm", "raw")}},
            FITTED,
            ("storage lvm (lvmthin) does not support qcow2 images",),
            id="a format that the storage cannot hold",
        ),
        pytest.param({"formats": {("nfs", "qcow2")}}, FITTED, (), id="a format that it can"),
        pytest.param(
            {"needs_iso": True, "iso_storage": "iso"},
            FITTED,
            ("storage iso for ISO images does not exist there",),
            id="the storage for ISOs is missing",
        ),
        pytest.param(
            {"needs_iso": True},
            replace(FITTED, iso_storage="lvm"),
            ("storage lvm does not allow ISO images",),
            id="the zone's storage for ISOs allows none",
        ),
        pytest.param(
            {},
            replace(FITTED, storage="fast"),
            ("storage fast does not exist there",),
            id="the zone's storage is missing",
        ),
    ],
)
def test_missing_host_capabilities(
    wanted: dict[str, Any], capabilities: HostCapabilities, why: tuple[str, ...]
) -> None:
    stores = {
        "lvm": HostStorage("lvm", 100 * GIB, type="lvmthin"),
        "nfs": HostStorage("nfs", 100 * GIB, type="nfs"),
        "ceph": HostStorage("ceph", 500 * GIB, shared=True, type="rbd"),
    }
    fields: Any = {k: frozenset(v) if isinstance(v, set) else v for k, v in wanted.items()}
    found = choose_host(
        replace(REQUEST, **fields),
        [host("a", stores=stores, capabilities=capabilities)],
        templates=[SHARED],
    )
    assert found.verdicts[0].why_not == why
