"""
The example manifests of karpenter-provider-proxmox, applied as they are, end in nodes.

They are read beside the project. What they only name is made here: storages, bridges, a pool, a
security group and a template in Proxmox, and the Secrets with the cloud-init templates. The story
runs on the embedded API and on a genuine control plane.
"""

import base64
import re
from pathlib import Path
from typing import Any

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, ProxmoxUnmanagedTemplate
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.testing.autoscaler_scenes import ScaledEnvironment, is_true, place
from moxwell.testing.autoscaler_world import DEPLOYMENTS
from moxwell.testing.karpenter_environment import JOIN_TEMPLATE
from moxwell.testing.machine_stories import NODES
from moxwell.testing.region_contents import contents_diff
from support.cluster_api_run import wire

EXAMPLES = Path(__file__).parents[3] / "shared" / "manifests" / "karpenter"
CLASS, TEMPLATE = EXAMPLES / "docs-deploy-nodepool.yaml", EXAMPLES / "docs-deploy-nodetemplate.yaml"
TALOS = EXAMPLES / "examples-talos-karpenter-unmanaged.yaml"
TALOS_VALUES = EXAMPLES / "examples-talos-user-data-values.yaml"
TALOS_WORKER = EXAMPLES / "examples-talos-worker.yaml"
PLACEHOLDER = "https://api.example.com:6443"  # of the values, which every user replaces
STORAGES = """
      - {storage: zfs, type: zfspool, pool: tank, content: [images], capacity: 900G}
      - {storage: system, type: dir, path: /srv/system, content: [images], capacity: 900G}
"""
BRIDGES = (
    "bridges: [{iface: vmbr0, address: 10.%d.0.%d/24}, {iface: vmbr1, address: 172.16.0.%d/24}]"
)
SECRETS = """
apiVersion: v1
kind: Secret
metadata: {name: talos-template, namespace: kube-system}
data: {user-data: %s}
---
apiVersion: v1
kind: Secret
metadata: {name: talos-values, namespace: kube-system}
stringData: {rack: r1}
"""
TALOS_OBJECTS = """
apiVersion: karpenter.proxmox.sinextra.dev/v1alpha1
kind: ProxmoxUnmanagedTemplate
metadata: {name: talos}
spec: {templateName: talos}
---
apiVersion: v1
kind: Secret
metadata: {name: karpenter-template, namespace: kube-system}
data: {user-data: %s}
"""
BRIDGE_LABEL = JOIN_TEMPLATE.replace(
    "{{ .Values.rack }}",
    '{{ .Values.rack }},bridge={{ (index .Network.Interfaces 0).NodeAddress4 | replace "/" "_" }}',
)  # the address of the host on the bridge of the guest


def example_world(world: str) -> str:
    """Both regions with what the examples name."""
    local = "[iso, vztmpl], capacity: 100G}\n"
    world = world.replace("name: ubuntu\n", "name: talos\n")
    world = world.replace(local, local.replace("]", ", import]").rstrip() + STORAGES)
    for region, number in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2)):
        host = f"name: pve{number}, address: 10.{region}.0.{number}/24"
        world = world.replace(host, f"{host}, {BRIDGES % (region, number, number)}")
    return world


async def every_example_ends_in_nodes(env: ScaledEnvironment) -> None:
    """The documented examples, with both kinds of templates, then those for Talos."""
    await add_names(env)
    before = env.stage.before = env.stage.contents()
    for text in (CLASS.read_text(), TEMPLATE.read_text()):
        await env.stage.apply(text)
    await node_of_the_documented_class(env)
    await node_of_the_documented_template(env)
    await forget(env, "default", (ProxmoxTemplate, ProxmoxUnmanagedTemplate))

    async def removed() -> bool:
        after = env.stage.contents()
        return not any(contents_diff(old, after[region]) for region, old in before.items())

    await env.until("template copies and images are removed", removed)
    await node_of_the_talos_example(env)
    await env.until("the guest of the example is removed", removed)


async def add_names(env: ScaledEnvironment) -> None:
    """The pool and the security group, and the Secrets of the node class."""
    for region in env.stage.engine.runtimes:
        pve = PveWriter(SwitchableTransport(wire(env.stage.engine, region)))
        await pve.pools.create("talos-k8s-proxmox")
        await pve.firewall.create_group("kubernetes")
    text = BRIDGE_LABEL.replace("127.0.0.1:6443", f"127.0.0.1:{env.stage.port}")
    await env.stage.apply(SECRETS % encoded(text))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def node_of_the_documented_class(env: ScaledEnvironment) -> None:
    claim = await run_pod(env, "first")
    assert claim.status.image_id.endswith("/9000")
    node = await env.kube.get(NODES, claim.status.node_name)
    labels = node["metadata"]["labels"]
    assert labels["rack"] == "r1"
    assert re.fullmatch(r"10\.\d\.0\.\d_24", labels["bridge"]), labels
    region, vmid = place(claim)
    conf = env.stage.engine.runtimes[region].region.guests[vmid].conf
    assert {"talos-k8s-proxmox", "karpenter"} <= set(str(conf["tags"]).split(";"))
    assert str(conf["scsi0"]).startswith("zfs:")
    assert "firewall=1" in str(conf["net0"])
    await env.kube.delete(DEPLOYMENTS, "first", "default")


async def node_of_the_documented_template(env: ScaledEnvironment) -> None:
    """The line of the example that is commented out: the class names the ProxmoxTemplate."""

    async def made() -> bool:
        found = await env.kube.get(ProxmoxTemplate, "default")
        return any(c.type == "Ready" and c.status == "True" for c in found.status.conditions)

    await env.until("the template is made", made)
    ref = {"instanceTemplateRef": {"kind": "ProxmoxTemplate"}}
    await env.kube.merge(ProxmoxNodeClass, "default", {"spec": ref})

    async def selected() -> bool:
        zones = (await env.kube.get(ProxmoxNodeClass, "default")).status.selected_zones
        return bool(zones) and not any(zone.endswith("/9000") for zone in zones)

    await env.until("the class uses the template", selected)
    claim = await run_pod(env, "second")
    template = await env.kube.get(ProxmoxTemplate, "default")
    assert claim.status.image_id in template.status.zones
    guests = await env.stage.guests()
    (guest,) = [g for g in guests if g.spec.provider_id == claim.status.provider_id]
    (second,) = [a for a in guest.status.ip_addresses if a.net == "net1"]
    assert second.ipv4[0].startswith("172.16.0.")
    assert second.ipv4[0] not in {f"172.16.0.{n}" for n in (1, 2, 3)}  # addresses of hosts
    assert second.ipv6[0].startswith("fd60:172:16:")
    region, vmid = place(claim)
    conf = env.stage.engine.runtimes[region].region.guests[vmid].conf
    assert "bridge=vmbr1" in str(conf["net1"])
    await env.kube.delete(DEPLOYMENTS, "second", "default")


async def node_of_the_talos_example(env: ScaledEnvironment) -> None:
    """A Talos worker that joins with the machine configuration of the example."""
    await env.stage.apply(TALOS_OBJECTS % encoded(TALOS_WORKER.read_text()))
    own = f"https://127.0.0.1:{env.stage.port}"
    await env.stage.apply(TALOS_VALUES.read_text().replace(PLACEHOLDER, own))
    await env.stage.apply(TALOS.read_text())
    claim = await run_pod(env, "talos")
    node = await env.kube.get(NODES, claim.status.node_name)
    assert node["spec"]["providerID"] == claim.status.provider_id
    await env.kube.delete(DEPLOYMENTS, "talos", "default")
    await forget(env, "default", (ProxmoxUnmanagedTemplate,), template="talos")


async def run_pod(env: ScaledEnvironment, name: str) -> NodeClaim:
    """One pod for the pool of the example; the claim of the node that runs it."""
    before = {claim.uid for claim in await env.claims()}
    await env.deploy(name, 1, "default")
    await env.running(name, 1)

    async def initialized() -> NodeClaim | None:
        found = [c for c in await env.claims("default") if c.uid not in before]
        return next((c for c in found if is_true(c, "Initialized")), None)

    claim: NodeClaim = await env.until(f"the node of {name} is initialized", initialized)
    return claim


async def forget(
    env: ScaledEnvironment, pool: str, templates: tuple[Any, ...], template: str = "default"
) -> None:
    """Delete the pool with its nodes, then the class and its templates."""
    await env.kube.delete(NodePool, pool)

    async def without_machines() -> bool:
        return not await env.claims() and not (await env.kube.list(ProxmoxMachine)).items

    await env.until("the nodes are gone", without_machines)
    await env.kube.delete(ProxmoxNodeClass, "default")
    for kind in templates:
        await env.kube.delete(kind, template)

    async def gone() -> bool:
        kinds: tuple[Any, ...] = (ProxmoxNodeClass, *templates)
        return not any([(await env.kube.list(kind)).items for kind in kinds])

    await env.until("the class and its templates are deleted", gone)
