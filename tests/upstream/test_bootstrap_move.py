"""
What ``moxwell bootstrap`` moves is accepted by genuine Cluster API, which changes no machine.

The objects are those of a bootstrapped cluster of three simulated machines. The target is a genuine
kube-apiserver with the genuine core, kubeadm and IPAM providers and their webhooks.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envtest import control_plane, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from moxwell.api import registry
from moxwell.api.capi.controlplane import KubeadmControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.clock import SystemClock
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.manifests import apply_all
from moxwell.kube.transport import KubeTransport
from moxwell.management import transfer
from moxwell.management.manifests import ManifestStage
from moxwell.management.objects import needed_kinds
from moxwell.runtime.unstructured import Unstructured
from moxwell.testing.bootstrap_environment import (
    SPEC,
    BootstrapEnvironment,
    create_bootstrap_environment,
    create_bootstrap_program,
    upstream_stage,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.two_regions import is_true

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("bootstrap move")]
STILL_SECONDS, COUNT_SECONDS = 10, 60
NEVER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "never", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "nodeSelector": {"no": "node"},
                "containers": [{"name": "c", "image": "i"}],
            },
        },
    },
}


async def is_complete(env: BootstrapEnvironment) -> bool:
    """Whether three machines are ready and nothing is left to do for them."""
    found = (await env.kube.list(ProxmoxMachine)).items
    ready = [m for m in found if is_true(m, "Ready") and not m.status.next_move]
    joined = [m for m in (await env.kube.list(Machine)).items if m.status.node_ref]
    return len(ready) == len(joined) == 3


def bootstrapped() -> tuple[Unstructured, ...]:
    """The objects of a cluster that is complete but not moved: a Deployment is not available."""

    async def main() -> tuple[Unstructured, ...]:
        stages = (upstream_stage(), ManifestStage("never", (NEVER,)))
        env = await create_bootstrap_environment(stages=stages)
        manager = create_bootstrap_program(env)
        running = asyncio.create_task(manager.run())
        await env.request()
        while not await is_complete(env):
            await asyncio.sleep(10)
        manager.stop()
        await running
        found = await transfer.read_objects(env.kube, "default", env.spec.name)
        await env.close()
        return found

    return run_virtual(main())


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require(*KUBERNETES, *CAPI, managers.CONTROL_PLANE.name)
    made = ControlPlane(tmp_path_factory.mktemp("management"))
    made.start()
    try:
        made.start_controller_manager()
        control_plane.wait_default_account(made)
        managers.start(made, *managers.ALL, managers.CONTROL_PLANE)
        yield made
    finally:
        made.stop()


async def _machines(kube: Kube) -> dict[str, str]:
    found = (await kube.list(Machine, "default")).items
    assert not [m.name for m in found if m.deleting]
    return {m.name: m.uid for m in found}


async def _is_served(kube: Kube) -> bool:
    kinds = {s.resource for s in await kube.discover()}
    return set(needed_kinds(SPEC)) <= kinds


async def move(path: Path, objects: tuple[Unstructured, ...]) -> None:
    access = kubeconfig.load([path]).access(SystemClock(), {})
    async with KubeTransport(access) as handler:
        kube = Kube(handler)
        await apply_all(kube, registry.make_crds(upstream=False), "test")
        while not await _is_served(kube):
            await asyncio.sleep(0.5)
        await transfer.create_objects(kube, objects)
        await transfer.create_objects(kube, objects)  # repeating it changes nothing
        there = await transfer.read_objects(kube, "default", "management")
        assert {o.identity for o in there} >= {o.identity for o in objects}
        for each in there:
            _check_owners(each, there)
        machines = await _machines(kube)
        assert len(machines) == 3
        cluster = await kube.get(Cluster.resource, "management", "default")
        assert cluster["spec"]["paused"] is True
        provisioned = {"status": {"initialization": {"provisioned": True}}}
        await kube.merge_status(ProxmoxCluster, "management", provisioned, "default")
        await transfer.end(cluster).perform(kube)
        await _until_counted(kube, machines)
        for _ in range(STILL_SECONDS):
            await asyncio.sleep(1)
            assert await _machines(kube) == machines


async def _until_counted(kube: Kube, machines: dict[str, str]) -> None:
    """Until the genuine control plane provider has reconciled the three machines."""
    for _ in range(COUNT_SECONDS):
        control = await kube.get(KubeadmControlPlane, "management-control-plane", "default")
        assert await _machines(kube) == machines
        if control.status.replicas == 3:
            return
        await asyncio.sleep(1)
    raise AssertionError(control.status)


def _check_owners(each: Unstructured, there: tuple[Unstructured, ...]) -> None:
    uids: dict[str, Any] = {o.uid: o for o in there}
    for owner in each.obj["metadata"].get("ownerReferences") or ():
        assert owner["uid"] in uids, (each, owner)


def test_genuine_cluster_api_accepts_the_objects_and_replaces_no_machine(
    plane: ControlPlane,
) -> None:
    objects = bootstrapped()
    assert sum(o.resource.kind == "ProxmoxMachine" for o in objects) == 3
    asyncio.run(move(Path(plane.kubeconfig), objects))
