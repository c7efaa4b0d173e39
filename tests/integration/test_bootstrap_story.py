"""``moxwell bootstrap`` from two simulated Proxmox clusters to a management cluster, and back."""

import asyncio
import base64
from typing import Any

import pytest
import yaml

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.management import transfer
from moxwell.management.objects import SECRETS
from moxwell.management.spec import ManagementZone
from moxwell.pve import preflight
from moxwell.pve.preflight import Feature
from moxwell.testing.bootstrap_environment import (
    SPEC,
    TALOS_SPEC,
    ZONES,
    BootstrapEnvironment,
    create_bootstrap_environment,
    create_bootstrap_program,
    with_fields,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.region_contents import contents_diff, contents_of
from moxwell.testing.two_regions import WORLD


async def until(env: BootstrapEnvironment, test: Any, seconds: float = 3600) -> Any:
    end = env.clock.monotonic() + seconds
    while not (found := await test()):
        if env.clock.monotonic() > end:
            raise AssertionError(await story(env))
        await asyncio.sleep(2)
    return found


async def story(env: BootstrapEnvironment) -> str:
    lines = []
    kinds: tuple[Any, ...] = (Cluster, Machine, ProxmoxMachine)
    for kind in kinds:
        for obj in (await env.kube.list(kind)).items:
            shown = [f"{c.type}={c.status} {c.reason} {c.message}" for c in obj.status.conditions]
            lines.append(f"{kind.__name__} {obj.name}: {shown}")
    return "\n".join(lines)


async def is_moved(env: BootstrapEnvironment) -> bool:
    if not env.servers.stores or (await env.kube.list(Cluster)).items:
        return False
    found = await env.target().find(Cluster, env.spec.name, env.spec.namespace)
    return found is not None and transfer.MOVING not in found.metadata.annotations


GRANTED = "      acl: [{path: /, user: moxwell@pve, role: Administrator}]"


def restricted_world(major: int) -> str:
    """One region in which the token has exactly the documented privileges for machines."""
    south = WORLD.index("  - name: south")
    world = WORLD[:south] if major == 8 else f"regions:\n{WORLD[south:]}"
    features: tuple[Feature, ...] = ("machines",)
    needs = preflight.needs(major, features)
    roles, acl = [], []
    for number, path in enumerate(sorted({n.path for n in needs})):
        held = ", ".join(sorted({n.privilege for n in needs if n.path == path}))
        roles.append(f"{{role: R{number}, privs: [{held}]}}")
        acl.append(f"{{path: {path}, user: moxwell@pve, role: R{number}}}")
    return world.replace(
        GRANTED, f"      roles: [{', '.join(roles)}]\n      acl: [{', '.join(acl)}]"
    )


@pytest.mark.parametrize("major, zone", [(8, ZONES[0]), (9, ZONES[1])])
def test_the_documented_privileges_suffice_for_three_machines(
    major: int, zone: ManagementZone
) -> None:
    spec = with_fields(SPEC, zones=(zone,), spread="Prefer")

    async def main() -> None:
        env = await create_bootstrap_environment(spec, world=restricted_world(major), foreign=False)
        region = env.engine.runtimes[zone.region].region
        before = contents_of(region)
        manager = create_bootstrap_program(env)
        running = asyncio.create_task(manager.run())
        await env.request()
        await until(env, lambda: is_moved(env))
        hosts = {guest.node for guest in env.guests().values()}
        assert len(env.guests()) == 3
        assert len(hosts) == min(3, len(region.hosts))
        await env.request(undo=True)
        await until(env, lambda: is_removed(env))
        await asyncio.sleep(60)
        assert contents_diff(before, contents_of(region)) == {}
        manager.stop()
        await running
        await env.close()

    run_virtual(main())


async def is_removed(env: BootstrapEnvironment) -> bool:
    return not (await env.kube.list(Cluster)).items and not env.guests()


def test_undo_refuses_while_the_management_cluster_has_other_clusters() -> None:
    async def main() -> None:
        env = await create_bootstrap_environment(with_fields(SPEC, replicas=1, zones=ZONES[:1]))
        manager = create_bootstrap_program(env)
        running = asyncio.create_task(manager.run())
        await env.request()
        await until(env, lambda: is_moved(env))
        other = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "spec": {}}
        meta = {"name": "tenant", "namespace": "default"}
        await env.target().create({**other, "metadata": meta}, Cluster.resource)
        await env.request(undo=True)
        await asyncio.sleep(300)
        assert len(env.guests()) == 1
        cluster = await env.target().get(Cluster, env.spec.name, "default")
        assert not cluster.spec.paused
        await env.target().delete(Cluster, "tenant", "default")
        await until(env, lambda: is_removed(env))
        manager.stop()
        await running
        await env.close()

    run_virtual(main())


def test_a_management_cluster_is_made_over_two_regions_and_removed() -> None:
    async def main() -> None:
        env = await create_bootstrap_environment()
        regions = {n: r.region for n, r in env.engine.runtimes.items()}
        before = {n: contents_of(r) for n, r in regions.items()}
        manager = create_bootstrap_program(env)
        running = asyncio.create_task(manager.run())
        await env.request()
        await until(env, lambda: is_moved(env))
        target = env.target()
        machines = (await target.list(ProxmoxMachine)).items
        assert {m.spec.region for m in machines} == {"north", "south"}
        assert len(machines) == len(env.guests()) == 3
        await env.request(undo=True)
        await until(env, lambda: is_removed(env))
        await asyncio.sleep(60)
        after = {n: contents_of(r) for n, r in regions.items()}
        assert all(contents_diff(before[n], after[n]) == {} for n in before)
        manager.stop()
        await running
        await env.close()

    run_virtual(main())


def test_a_management_cluster_on_talos_is_made_over_two_regions_and_removed() -> None:
    async def main() -> None:
        env = await create_bootstrap_environment(TALOS_SPEC)
        regions = {n: r.region for n, r in env.engine.runtimes.items()}
        before = {n: contents_of(r) for n, r in regions.items()}
        manager = create_bootstrap_program(env)
        running = asyncio.create_task(manager.run())
        await env.request()
        await until(env, lambda: is_moved(env))
        target = env.target()
        machines = (await target.list(ProxmoxMachine)).items
        assert {m.spec.region for m in machines} == {"north", "south"}
        assert len(machines) == len(env.guests()) == 3
        assert len(env.talos.begun) == 1
        found = await target.get(SECRETS, f"{env.spec.name}-talosconfig", "default")
        config = yaml.safe_load(base64.b64decode(found["data"]["talosconfig"]))
        endpoints = config["contexts"][env.spec.name]["endpoints"]
        assert [a for a in endpoints if a.startswith(("10.40.0.1", "10.41.0.1"))] == endpoints
        assert len(set(endpoints)) == 3
        await env.request(undo=True)
        await until(env, lambda: is_removed(env))
        await asyncio.sleep(60)
        after = {n: contents_of(r) for n, r in regions.items()}
        assert all(contents_diff(before[n], after[n]) == {} for n in before)
        manager.stop()
        await running
        await env.close()

    run_virtual(main())
