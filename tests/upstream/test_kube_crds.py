"""A genuine apiserver accepts every CRD we render, and judges objects as our own rules do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from envtest.control_plane import PROGRAMS, ControlPlane
from envtest.plugin import require
from moxwell.api import registry, validation
from moxwell.api.capi.core import Cluster
from moxwell.api.cozystack import Kubernetes
from moxwell.api.ipam import InClusterIPPool
from moxwell.api.kamaji import TenantControlPlane
from moxwell.api.kinds import Object, Resource
from moxwell.api.meta import ObjectMeta
from moxwell.clock import SystemClock
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.codec import WatchEvent
from moxwell.kube.errors import InvalidObject, KubeBadRequest
from moxwell.kube.transport import KubeTransport
from support.objects import objects

pytestmark = pytest.mark.genuine
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
STORED = [k for k in (*registry.OURS, *registry.UPSTREAM) if k.declared.storage]
SERVED = [k for k in (*registry.OURS, *registry.UPSTREAM) if k.declared.served]


def named(kind: type[Object]) -> str:
    return f"{kind.resource.kind} {kind.resource.version}"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Any:
    require(*PROGRAMS)
    with ControlPlane(tmp_path_factory.mktemp("plane")) as control_plane:
        control_plane.start()
        asyncio.run(install(control_plane))
        yield control_plane


def transport(plane: ControlPlane) -> KubeTransport:
    return KubeTransport(kubeconfig.load([Path(plane.kubeconfig)]).access(SystemClock(), {}))


async def install(plane: ControlPlane) -> None:
    async with transport(plane) as handler:
        kube = Kube(handler)
        for tree in registry.make_crds():
            await kube.apply(tree, CRDS)
        async with asyncio.timeout(240):
            waiting = {tree["metadata"]["name"] for tree in registry.make_crds()}
            async for event in kube.watch(CRDS, initial=True):
                if isinstance(event, WatchEvent) and established(event.object):
                    waiting.discard(event.object["metadata"]["name"])
                if not waiting:
                    return


def conditions(tree: dict[str, Any]) -> dict[str, str]:
    found = tree.get("status", {}).get("conditions") or []
    return {condition["type"]: condition["status"] for condition in found}


def established(tree: dict[str, Any]) -> bool:
    return conditions(tree).get("Established") == "True"


@pytest.fixture
async def kube(plane: ControlPlane) -> AsyncIterator[Kube]:
    async with transport(plane) as handler:
        yield Kube(handler)


@pytest.mark.parametrize("kind", STORED, ids=named)
async def test_the_crd_is_accepted_and_structural(kube: Kube, kind: type[Object]) -> None:
    tree = await kube.get(CRDS, kind.resource.group_resource)
    found = conditions(tree)
    assert found.pop("KubernetesAPIApprovalPolicyConformant", "True") == "True"  # of *.k8s.io
    assert found == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize("kind", SERVED, ids=named)
def test_what_fits_our_declaration_fits_the_server(plane: ControlPlane, kind: type[Object]) -> None:
    """Objects drawn from the schema are judged alike by the server and by our rules."""

    @settings(
        max_examples=10,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(objects(kind), min_size=5, max_size=10))
    def judge(trees: list[dict[str, Any]]) -> None:
        asyncio.run(compare(trees))

    async def compare(trees: list[dict[str, Any]]) -> None:
        async with transport(plane) as handler:
            for tree in trees:
                await agree(Kube(handler), kind, tree)

    judge()


async def agree(kube: Kube, kind: type[Object], tree: dict[str, Any]) -> None:
    tree.pop("status", None)
    place = "default" if kind.resource.namespaced else ""
    tree["metadata"] = {"name": "thing", **({"namespace": place} if place else {})}
    broken = {violation.message for violation in validation.violations(msgspec.convert(tree, kind))}
    refusal = await refused(kube, kind, tree)
    assert bool(broken) == bool(refusal), f"{tree}: we say {broken}, the server {refusal!r}"
    assert not broken or any(message in refusal for message in broken), refusal


async def refused(kube: Kube, kind: type[Object], tree: dict[str, Any]) -> str:
    try:
        await kube.create(tree, kind.resource, dry_run=True)
    except InvalidObject as refusal:
        return str(refusal)
    return ""


async def test_defaults_are_filled_in_by_the_server(kube: Kube) -> None:
    plain: dict[str, Any] = {
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"kubernetes": {"version": "v1.31.4"}, "networkProfile": {}},
        "apiVersion": "kamaji.clastix.io/v1alpha1",
        "kind": "TenantControlPlane",
    }
    made = await kube.create(plain, TenantControlPlane.resource)
    assert made["spec"]["networkProfile"]["port"] == 6443
    assert (await kube.get(TenantControlPlane, "t", "default")).spec.network_profile.port == 6443


async def test_fields_of_upstream_that_our_types_lack_are_kept(kube: Kube) -> None:
    topology = {"classRef": {"name": "c"}, "version": "v1.36.0", "controlPlane": {"replicas": 3}}
    spec = {"availabilityGates": [{"conditionType": "X"}], "topology": topology}
    tree: dict[str, Any] = {
        "apiVersion": Cluster.resource.api_version,
        "kind": "Cluster",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": spec,
    }
    await kube.create(tree, Cluster.resource)
    typed = await kube.get(Cluster, "c", "default")
    labelled = ObjectMeta(
        name="c",
        namespace="default",
        resource_version=typed.metadata.resource_version,
        labels={"a": "b"},
    )
    await kube.update(
        msgspec.structs.replace(typed, metadata=msgspec.structs.replace(labelled, labels={})),
        msgspec.structs.replace(typed, metadata=labelled),
    )
    found = await kube.get(Cluster.resource, "c", "default")
    assert found["spec"] == spec
    assert found["metadata"]["labels"] == {"a": "b"}


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([{"name": "worker", "replicas": 3}], id="a list"),
        pytest.param({"worker": {"minReplicas": 1, "maxReplicas": 3}}, id="a map"),
    ],
)
async def test_node_groups_are_taken_in_both_forms(kube: Kube, groups: Any) -> None:
    tree: dict[str, Any] = {
        "apiVersion": "apps.cozystack.io/v1alpha1",
        "kind": "Kubernetes",
        "metadata": {"name": "tenant-cluster", "namespace": "default"},
        "spec": {"replicas": 3, "nodeGroups": groups},
    }
    made = await kube.apply(tree, Kubernetes.resource, force=True)
    assert made["spec"]["nodeGroups"] == groups
    read = await kube.get(Kubernetes, "tenant-cluster", "default")
    assert [group.name for group in read.spec.groups] == ["worker"]
    await kube.delete(Kubernetes, "tenant-cluster", "default")


async def test_a_wrong_type_is_refused(kube: Kube) -> None:
    tree: dict[str, Any] = {
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2",
        "kind": "InClusterIPPool",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"addresses": [], "prefix": "24"},
    }
    with pytest.raises((InvalidObject, KubeBadRequest), match=r"spec\.prefix"):
        await kube.create(tree, InClusterIPPool.resource)
