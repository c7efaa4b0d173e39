"""The ground's plan as a table; regions brought by clusters; leftovers by mark."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.cluster import Endpoint, ProxmoxCluster, RegionHealth, SecretRef
from moxwell.api.infra.machine import MachineSpec
from moxwell.api.infra.network import IPConfig
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.cluster.plan import (
    AskEndpoint,
    GiveBack,
    HoldSecrets,
    PutEndpoint,
    PutPools,
    ReleaseSecrets,
    describe,
    next_move,
)
from moxwell.controllers.infra.cluster.see import Seen
from moxwell.controllers.infra.collect.plan import (
    PATIENCE_SECONDS,
    Orphan,
    orphaned_guests,
    orphaned_isos,
    ripe,
)
from moxwell.controllers.infra.region_registry import RegionBook, RegionTaken
from moxwell.controllers.infra.template.plan import capacity
from moxwell.controllers.infra.zone_defaults import Grounds, RegionNotNamed, ServerUnknown
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling.zone_settings import MadePool
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport
from moxwell.testing.two_regions import configs

HERE: dict[str, Any] = {"controlPlaneEndpoint": {"host": "10.0.0.4", "port": 6443}}
POOL = MadePool("c-v4-icip", "default", 4, IPConfig(addresses=("10.0.0.9",), prefix=24))
UP = RegionHealth(name="r", available=True)
DOWN = RegionHealth(name="s", available=False, message="no answer")


def obj(deleting: bool = False, **spec: Any) -> ProxmoxCluster:
    made = msgspec.convert(
        {"metadata": {"name": "c", "namespace": "n"}, "spec": spec}, ProxmoxCluster
    )
    if not deleting:
        return made
    meta = ObjectMeta(name="c", namespace="n", deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    return msgspec.structs.replace(made, metadata=meta)


@pytest.mark.parametrize(
    "cluster, seen, expected",
    [
        pytest.param(obj(), Seen(stuck=Wait("X")), Wait("X"), id="no owner yet"),
        pytest.param(obj(), Seen(pools_missing=(POOL,)), PutPools((POOL,)), id="pools first"),
        pytest.param(
            obj(),
            Seen(pools_missing=(POOL,), grace=0),
            PutPools((POOL,), grace=0),
            id="no address rests when the Cluster goes",
        ),
        pytest.param(
            obj(), Seen(pools_unwanted=("x",)), PutPools((), ("x",)), id="a pool too many"
        ),
        pytest.param(
            obj(**HERE),
            Seen(secrets_loose=(SecretRef(name="s"),)),
            HoldSecrets((SecretRef(name="s"),)),
            id="credentials are held and move along",
        ),
        pytest.param(
            obj(True),
            Seen(secrets_held=(SecretRef(name="s"),)),
            ReleaseSecrets((SecretRef(name="s"),)),
            id="credentials are let go last",
        ),
        pytest.param(obj(), Seen(problem="p", problem_reason="P"), Wait("P", "p"), id="no region"),
        pytest.param(obj(), Seen(regions=(UP,)), "MissingControlPlaneEndpoint", id="no endpoint"),
        pytest.param(
            obj(externalManagedControlPlane=True),
            Seen(regions=(UP,)),
            "MissingControlPlaneEndpoint",
            id="the hosted control plane brings one later",
        ),
        pytest.param(
            obj(),
            Seen(endpoint=Endpoint(host="h", port=1), regions=(UP,)),
            PutEndpoint(Endpoint(host="h", port=1)),
            id="the Cluster has one",
        ),
        pytest.param(
            obj(controlPlaneEndpointPool={"name": "p"}),
            Seen(regions=(UP,)),
            AskEndpoint,
            id="one from a pool",
        ),
        pytest.param(
            obj(controlPlaneEndpointPool={"name": "p"}),
            Seen(endpoint_claimed=True),
            "WaitingForEndpoint",
            id="the pool has not answered",
        ),
        pytest.param(
            obj(controlPlaneEndpointPool={"name": "p"}),
            Seen(endpoint_claimed=True, endpoint_given="10.9.9.9", cluster=Cluster()),
            PutEndpoint(Endpoint(host="10.9.9.9", port=6443)),
            id="the pool has answered",
        ),
        pytest.param(obj(**HERE), Seen(regions=(UP,)), Done, id="all is well"),
        pytest.param(obj(**HERE), Seen(regions=(UP, DOWN)), "RegionUnreachable", id="one is down"),
        pytest.param(obj(True), Seen(machines=("m",)), "WaitingForMachines", id="machines left"),
        pytest.param(obj(True), Seen(owned_claims=("x",)), GiveBack(("x",)), id="address left"),
        pytest.param(
            obj(True),
            Seen(pools_unwanted=("p",), addresses_left=1),
            "WaitingForAddresses",
            id="addresses of the pool are still given",
        ),
        pytest.param(obj(True), Seen(pools_unwanted=("p",)), PutPools((), ("p",)), id="pool left"),
        pytest.param(obj(True), Seen(), Done, id="nothing left"),
    ],
)
def test_next_move(cluster: ProxmoxCluster, seen: Seen, expected: Any) -> None:
    move = next_move(cluster, seen)
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    elif isinstance(expected, type):
        assert isinstance(move, expected)
    else:
        assert move == expected


def test_one_region_down_takes_back_nothing() -> None:
    cluster, seen = obj(**HERE), Seen(regions=(UP, DOWN))
    status = describe(cluster, seen, next_move(cluster, seen))
    said = {c.type: (c.status, c.reason) for c in status.conditions}
    assert status.initialization.provisioned
    assert said["ProxmoxAvailable"] == ("False", "SomeRegionsUnreachable")
    assert said["Ready"] == ("Unknown", "RegionUnreachable")


def test_all_regions_down_at_first_is_not_provisioned() -> None:
    cluster, seen = obj(**HERE), Seen(regions=(DOWN,))
    status = describe(cluster, seen, next_move(cluster, seen))
    assert status.initialization.provisioned is None


# ---- regions


def grounds(*names: str) -> Grounds:
    regions = with_regions(*names)
    return Grounds(regions, RegionBook(regions, configs(*names)))


def with_regions(*names: str) -> Regions:
    def silent(method: str, path: str, params: dict[str, Any]) -> Any:
        return []

    async def make() -> Regions:
        return Regions(
            configs(*names), LoopClock(), connect=lambda config: ScriptedTransport(silent)
        )

    return run_virtual(make())


@pytest.mark.parametrize(
    "cluster, names, region",
    [
        pytest.param(obj(), ["north"], "north", id="the only one"),
        pytest.param(obj(region="south"), ["north", "south"], "south", id="by name"),
        pytest.param(obj(server="north.example"), ["north", "south"], "north", id="by server"),
        pytest.param(
            obj(credentialsRef={"name": "s"}), ["north", "south"], "n.s", id="by credentials"
        ),
    ],
)
def test_which_region(cluster: ProxmoxCluster, names: list[str], region: str) -> None:
    assert grounds(*names).names(cluster) == (region,)


def test_two_regions_and_none_named_is_a_mistake() -> None:
    with pytest.raises(RegionNotNamed, match=r"set spec\.region"):
        grounds("north", "south").names(obj())


def test_what_one_cluster_brings_is_nobody_elses() -> None:
    async def main() -> None:
        def silent(method: str, path: str, params: dict[str, Any]) -> Any:
            return []

        known = configs("north")
        regions = Regions(known, LoopClock(), connect=lambda c: ScriptedTransport(silent))
        book = RegionBook(regions, known)
        book.bring(Key("team-a", "c"), configs("team-a.s"))
        found = Grounds(regions, book)
        assert found.names(obj()) == ("north",)
        assert found.find(obj(), "team-a.s") is None
        with pytest.raises(ServerUnknown, match=r"known are north\.example:8006"):
            found.names(obj(server="team-a.s.example"))
        book.bring(Key(obj().namespace, obj().name), configs("team-a.s"))
        assert found.find(obj(), "team-a.s") is not None

    run_virtual(main())


def test_an_unknown_server_names_the_known_ones() -> None:
    with pytest.raises(ServerUnknown, match=r"north\.example:8006"):
        grounds("north").names(obj(server="pve.example"))


def test_clusters_bring_regions_but_take_none_over() -> None:
    regions = with_regions("north")
    book = RegionBook(regions, configs("north"))
    book.bring("c1", configs("own"))
    assert sorted(regions) == ["north", "own"]
    with pytest.raises(RegionTaken):
        book.bring("c2", configs("north"))
    book.drop("c1")
    assert sorted(regions) == ["north"]
    book.configure(configs("north", "west"))
    assert sorted(regions) == ["north", "west"]


# ---- leftovers


def tagged(vmid: int, owner: str, *more: str, template: bool = False) -> GuestSeen:
    tags = (*Mark(owner).tags().split(";"), *more)
    return GuestSeen(vmid, "a", tags=tags, template=template)


def test_orphans_are_ours_marked_and_unowned() -> None:
    guests = [
        tagged(1, "gone"),
        tagged(2, "here"),
        tagged(3, "gone", "moxwell-kept"),
        tagged(4, "gone", template=True),
        tagged(6, "gone", "moxwell-csi-shell"),
        GuestSeen(5, "a", tags=("other",)),
    ]
    found = orphaned_guests("r", guests, {Mark("here").key})
    assert [o.name for o in found] == ["1"]


def test_seed_disks_without_their_machine() -> None:
    volids = [
        "local:iso/moxwell-seed-100-aaaa.iso",
        "local:iso/moxwell-seed-101-bbbb.iso",
        "local:iso/moxwell-seed-7-bbbb.iso",
        "local:iso/debian.iso",
    ]
    found = orphaned_isos("r", "a", volids, {"bbbb": 101})
    assert [o.name for o in found] == [volids[0], volids[2]]


def test_nothing_is_removed_in_haste() -> None:
    orphan, first = Orphan("r", "a", "1", "k"), dict[Orphan, float]()
    assert ripe(first, [orphan], 0.0) == []
    assert ripe(first, [orphan], PATIENCE_SECONDS) == [orphan]
    assert ripe(first, [], PATIENCE_SECONDS + 1) == []
    assert ripe(first, [orphan], PATIENCE_SECONDS + 2) == []


# ---- templates


def test_capacity_from_the_spec_or_from_the_template() -> None:
    template = GuestSeen(9000, "a", cpus=2, memory_bytes=2 << 30, disk_bytes=8 << 30)
    assert capacity(MachineSpec(), template).capacity == {
        "cpu": "2",
        "memory": "2048Mi",
        "ephemeral-storage": "8Gi",
    }
    spec = MachineSpec(num_cores=4, num_sockets=2, memory_mib=4096)
    assert capacity(spec, None).capacity == {"cpu": "8", "memory": "4096Mi"}


@pytest.mark.parametrize(
    "found, told",
    [
        pytest.param("arm64", "arm64", id="as it was found"),
        pytest.param("", "amd64", id="nobody knows yet"),
    ],
)
def test_the_architecture_of_a_node_to_be(found: str, told: str) -> None:
    info = capacity(MachineSpec(), None, found).node_info
    assert info is not None
    assert (info.architecture, info.operating_system) == (told, "linux")
