"""The plan of infra.cluster as a table; regions added by clusters; orphans; templates."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.cluster import ControlPlaneEndpoint, ProxmoxCluster, RegionHealth, SecretRef
from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.ipam import InClusterIPPool, PoolSpec
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.cluster.describe import describe
from moxwell.controllers.infra.cluster.plan import (
    AnnotateClaims,
    ApplyPools,
    ClaimEndpoint,
    ConnectRegions,
    ObservedProxmoxCluster,
    ProtectSecrets,
    ReleaseEndpoint,
    ReleaseSecrets,
    SetEndpoint,
    plan,
)
from moxwell.controllers.infra.collect import plan as collect
from moxwell.controllers.infra.collect.plan import (
    GRACE_SECONDS,
    ObservedOrphans,
    Orphan,
    orphaned_guests,
    orphaned_isos,
)
from moxwell.controllers.infra.region_registry import RegionNameTaken, RegionRegistry
from moxwell.controllers.infra.template.plan import ObservedTemplate, capacity
from moxwell.controllers.infra.template.plan import describe as describe_template
from moxwell.controllers.infra.zone_defaults import RegionNotNamed, ServerUnknown, ZoneResolver
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import Mark
from moxwell.pve.regions import Regions
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_transport import ScriptedTransport
from moxwell.testing.two_regions import configs

HERE: dict[str, Any] = {"controlPlaneEndpoint": {"host": "10.0.0.4", "port": 6443}}
POOLED: dict[str, Any] = {"ipv4Config": {"addresses": ["10.0.0.9"], "prefix": 24}}
LEAVING = Cluster(metadata=ObjectMeta(deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))


def pool(name: str = "c-v4-icip", grace: int = 60, prefix: int = 24) -> InClusterIPPool:
    spec = PoolSpec(
        addresses=("10.0.0.9",), prefix=prefix, address_reuse_grace_period_seconds=grace
    )
    return InClusterIPPool(metadata=ObjectMeta(name=name), spec=spec)


def owned(*pools: InClusterIPPool) -> dict[str, Any]:
    return {"pools": {p.name: p for p in pools}, "owned_pools": frozenset(p.name for p in pools)}


def seen(**more: Any) -> ObservedProxmoxCluster:
    return ObservedProxmoxCluster(**{"cluster": Cluster(), **more})


OWN = tuple(configs("own"))
WITH_ENDPOINT = msgspec.convert(
    {"metadata": {}, "spec": {"controlPlaneEndpoint": {"host": "h", "port": 1}}}, Cluster
)
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
    "cluster, world, expected",
    [
        pytest.param(obj(), seen(cluster=None), "WaitingForCluster", id="no owner yet"),
        pytest.param(
            obj(credentialsRef={"name": "s"}),
            seen(own_regions=OWN),
            ConnectRegions(Key("n", "c"), OWN),
            id="its own region is connected first",
        ),
        pytest.param(
            obj(),
            seen(connected_regions=OWN),
            ConnectRegions(Key("n", "c"), ()),
            id="none any more",
        ),
        pytest.param(
            obj(**HERE),
            seen(unprotected_secrets=(SecretRef(name="s"),)),
            ProtectSecrets("n", (SecretRef(name="s"),)),
            id="credentials get a finalizer and move along",
        ),
        pytest.param(
            obj(True),
            seen(protected_secrets=(SecretRef(name="s"),)),
            ReleaseSecrets((SecretRef(name="s"),)),
            id="credentials are released last",
        ),
        pytest.param(obj(), seen(problem="p", problem_reason="P"), Wait("P", "p"), id="no region"),
        pytest.param(obj(), seen(regions=(UP,)), "MissingControlPlaneEndpoint", id="no endpoint"),
        pytest.param(
            obj(externalManagedControlPlane=True),
            seen(regions=(UP,)),
            "MissingControlPlaneEndpoint",
            id="the hosted control plane brings one later",
        ),
        pytest.param(
            obj(),
            seen(cluster=WITH_ENDPOINT, regions=(UP,)),
            SetEndpoint(Key("n", "c"), "", ControlPlaneEndpoint(host="h", port=1)),
            id="the Cluster has one",
        ),
        pytest.param(
            obj(controlPlaneEndpointPool={"name": "p"}),
            seen(regions=(UP,)),
            ClaimEndpoint,
            id="one from a pool",
        ),
        pytest.param(
            obj(controlPlaneEndpointPool={"name": "p"}),
            seen(endpoint_claimed=True),
            "WaitingForEndpoint",
            id="the pool has not answered",
        ),
        pytest.param(
            obj(controlPlaneEndpointPool={"name": "p"}),
            seen(endpoint_claimed=True, endpoint_address="10.9.9.9"),
            SetEndpoint(Key("n", "c"), "", ControlPlaneEndpoint(host="10.9.9.9", port=6443)),
            id="the pool has answered",
        ),
        pytest.param(obj(**HERE), seen(regions=(UP,)), Done, id="all is well"),
        pytest.param(obj(**HERE), seen(regions=(UP, DOWN)), "RegionUnreachable", id="one is down"),
        pytest.param(obj(True), seen(machines=("m",)), "WaitingForMachines", id="machines left"),
        pytest.param(
            obj(True), seen(owned_claims=("x",)), ReleaseEndpoint("n", ("x",)), id="address left"
        ),
        pytest.param(
            obj(True),
            seen(**owned(pool("p")), addresses_in_use={"p": 1}),
            "WaitingForAddresses",
            id="addresses of the pool are in use",
        ),
        pytest.param(
            obj(True),
            seen(
                **owned(pool("p")),
                addresses_in_use={"p": 1},
                waiting_claims=(("p", "a"), ("other", "b")),
            ),
            AnnotateClaims("n", ("a",)),
            id="addresses that were released before wait for nobody",
        ),
        pytest.param(
            obj(True), seen(**owned(pool("p"))), ApplyPools("n", (), ("p",)), id="pool left"
        ),
        pytest.param(obj(True), seen(), Done, id="nothing left"),
    ],
)
def test_next_move(cluster: ProxmoxCluster, world: ObservedProxmoxCluster, expected: Any) -> None:
    move = plan(cluster, world)
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    elif isinstance(expected, type):
        assert isinstance(move, expected)
    else:
        assert move == expected


@pytest.mark.parametrize(
    "world, applied, deleted",
    [
        pytest.param({}, [("c-v4-icip", 60)], (), id="a pool is missing"),
        pytest.param(owned(pool(prefix=16)), [("c-v4-icip", 60)], (), id="a pool differs"),
        pytest.param(owned(pool(), pool("x")), [], ("x",), id="a pool too many"),
        pytest.param(
            {**owned(pool()), "cluster": LEAVING},
            [("c-v4-icip", 0)],
            (),
            id="no address waits for its reuse when the Cluster is deleted",
        ),
    ],
)
def test_pools(world: dict[str, Any], applied: list[tuple[str, int]], deleted: Any) -> None:
    move = plan(obj(**POOLED, **HERE), seen(**world))
    assert isinstance(move, ApplyPools)
    found = [(p.name, p.spec.address_reuse_grace_period_seconds) for p in move.pools]
    assert (found, move.unwanted) == (applied, deleted)
    assert all(p.metadata.owner_references for p in move.pools)


def test_a_foreign_pool_is_not_deleted() -> None:
    world = seen(pools={"c-v4-icip": pool(), "x": pool("x")}, regions=(UP,))
    assert plan(obj(**POOLED, **HERE), world) == Done()


def test_one_region_down_takes_back_nothing() -> None:
    cluster, world = obj(**HERE), seen(regions=(UP, DOWN))
    status = describe(cluster, world, plan(cluster, world))
    found = {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}
    assert status["initialization"] == {"provisioned": True}
    assert found["ProxmoxAvailable"] == ("False", "SomeRegionsUnreachable")
    assert found["Ready"] == ("Unknown", "RegionUnreachable")


def test_what_was_provisioned_is_not_taken_back() -> None:
    cluster, world = obj(**HERE), seen(regions=(DOWN,))
    assert "initialization" not in describe(cluster, world, plan(cluster, world))


def test_failure_domains_stay_while_the_regions_cannot_be_resolved() -> None:
    cluster, world = obj(**HERE), seen(problem="p", problem_reason="P")
    assert "failureDomains" not in describe(cluster, world, plan(cluster, world))
    assert describe(cluster, seen(regions=(UP,)), Done())["failureDomains"] is None


# ---- regions


def zones(*names: str) -> ZoneResolver:
    regions = with_regions(*names)
    return ZoneResolver(regions, RegionRegistry(regions, configs(*names)))


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
    assert zones(*names).names(cluster) == (region,)


def test_two_regions_and_none_named_is_a_mistake() -> None:
    with pytest.raises(RegionNotNamed, match=r"set spec\.region"):
        zones("north", "south").names(obj())


def test_a_region_that_a_cluster_adds_is_visible_to_it_alone() -> None:
    async def main() -> None:
        def silent(method: str, path: str, params: dict[str, Any]) -> Any:
            return []

        known = configs("north")
        regions = Regions(known, LoopClock(), connect=lambda c: ScriptedTransport(silent))
        registry = RegionRegistry(regions, known)
        registry.add(Key("team-a", "c"), configs("team-a.s"))
        found = ZoneResolver(regions, registry)
        assert found.names(obj()) == ("north",)
        assert found.find(obj(), "team-a.s") is None
        with pytest.raises(ServerUnknown, match=r"configured servers: north\.example:8006"):
            found.names(obj(server="team-a.s.example"))
        registry.add(Key(obj().namespace, obj().name), configs("team-a.s"))
        assert found.find(obj(), "team-a.s") is not None

    run_virtual(main())


def test_an_unknown_server_names_the_known_ones() -> None:
    with pytest.raises(ServerUnknown, match=r"north\.example:8006"):
        zones("north").names(obj(server="pve.example"))


def test_clusters_add_regions_but_replace_none() -> None:
    regions = with_regions("north")
    registry = RegionRegistry(regions, configs("north"))
    registry.add("c1", configs("own"))
    assert sorted(regions) == ["north"]
    assert sorted(regions.scope("c1")) == ["north", "own"]
    with pytest.raises(RegionNameTaken):
        registry.add("c2", configs("north"))
    registry.remove("c1")
    assert sorted(regions.scope("c1")) == ["north"]
    registry.configure(configs("north", "west"))
    assert sorted(regions) == ["north", "west"]


# ---- orphans


def tagged(vmid: int, owner: str, *more: str, template: bool = False) -> ObservedGuest:
    tags = (*Mark(owner).tags().split(";"), *more)
    return ObservedGuest(vmid, "a", tags=tags, template=template)


def test_orphans_are_ours_marked_and_unowned() -> None:
    guests = [
        tagged(1, "gone"),
        tagged(2, "here"),
        tagged(3, "gone", "moxwell-kept"),
        tagged(4, "gone", template=True),
        tagged(6, "gone", "moxwell-csi-shell"),
        ObservedGuest(5, "a", tags=("other",)),
    ]
    found = orphaned_guests("r", guests, {Mark("here").key})
    assert [o.name for o in found] == ["1"]


def test_bootstrap_isos_without_their_machine() -> None:
    volids = [
        "local:iso/moxwell-bootstrap-100-aaaa.iso",
        "local:iso/moxwell-bootstrap-101-bbbb.iso",
        "local:iso/moxwell-bootstrap-7-bbbb.iso",
        "local:iso/moxwell-seed-100-aaaa.iso",  # the earlier name
        "local:iso/moxwell-seed-101-bbbb.iso",
        "local:iso/debian.iso",
    ]
    found = orphaned_isos("r", "a", volids, {"bbbb": 101})
    assert [o.name for o in found] == [volids[0], volids[2], volids[3]]


GUEST, ISO = Orphan("r", "a", "1", "k"), Orphan("r", "a", "local:iso/x-k.iso", "k")


@pytest.mark.parametrize(
    "now, unreadable, guests, isos",
    [
        pytest.param(GRACE_SECONDS - 1, False, (), [], id="too early"),
        pytest.param(GRACE_SECONDS, False, (GUEST,), [ISO.name], id="guests stay, ISOs go"),
        pytest.param(GRACE_SECONDS, True, (GUEST,), [], id="an unreadable machine may own it"),
    ],
)
def test_what_is_collected(now: float, unreadable: bool, guests: Any, isos: list[str]) -> None:
    since = {GUEST: 0.0, ISO: 0.0}
    move = collect.plan(ObservedOrphans(("r",), since, now, owners_unreadable=unreadable))
    assert (move.guests, [d.volid for _, d in move.deletions]) == (guests, isos)


# ---- templates


def test_capacity_from_the_spec_or_from_the_template() -> None:
    template = ObservedGuest(9000, "a", cpus=2, memory_bytes=2 << 30, disk_bytes=8 << 30)
    assert capacity(ProxmoxMachineSpec(), template).capacity == {
        "cpu": "2",
        "memory": "2048Mi",
        "ephemeral-storage": "8Gi",
    }
    spec = ProxmoxMachineSpec(num_cores=4, num_sockets=2, memory_mib=4096)
    assert capacity(spec, None).capacity == {"cpu": "8", "memory": "4096Mi"}


@pytest.mark.parametrize(
    "found, expected",
    [
        pytest.param("arm64", "arm64", id="as it was found"),
        pytest.param("", "amd64", id="not known yet"),
    ],
)
def test_the_architecture_of_a_node_to_be(found: str, expected: str) -> None:
    info = capacity(ProxmoxMachineSpec(), None, found).node_info
    assert info is not None
    assert (info.architecture, info.operating_system) == (expected, "linux")


def test_the_node_info_stays_while_the_template_cannot_be_read() -> None:
    spec = ProxmoxMachineSpec(num_cores=4)
    assert "nodeInfo" not in describe_template(spec, ObservedTemplate(unreadable=True))
    found = describe_template(spec, ObservedTemplate(architecture="arm64"))
    assert found["nodeInfo"] == {"architecture": "arm64", "operatingSystem": "linux"}
