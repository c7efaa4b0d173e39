"""
The example manifests of karpenter-provider-proxmox apply unchanged and end in nodes.

They are read beside the project. What they only name is made here: storages, a pool, a security
group and a template in Proxmox, and the Secrets with the cloud-init templates.
"""

import base64
import re
from pathlib import Path

import pytest
import yaml

from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.controllers.karpenter.provider import InstanceState, NodeInstance
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.testing.karpenter_environment import (
    JOIN_TEMPLATE,
    KarpenterEnvironment,
    karpenter_environment,
)
from moxwell.testing.loop import run_virtual
from moxwell.testing.two_regions import WORLD

EXAMPLES = Path(__file__).parents[3] / "shared" / "manifests" / "karpenter"
CLASS, TEMPLATE = EXAMPLES / "docs-deploy-nodepool.yaml", EXAMPLES / "docs-deploy-nodetemplate.yaml"
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


def example_world() -> str:
    """Both regions with what the examples name."""
    world = WORLD.replace("name: ubuntu\n", "name: talos\n")
    local = "[iso, vztmpl], capacity: 100G}\n"
    world = world.replace(local, local.replace("]", ", import]").rstrip() + STORAGES)
    for region, number in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2)):
        host = f"name: pve{number}, address: 10.{region}.0.{number}/24"
        world = world.replace(host, f"{host}, {BRIDGES % (region, number, number)}")
    return world


BRIDGE_LABEL = JOIN_TEMPLATE.replace(
    "{{ .Values.rack }}", "{{ .Values.rack }},bridge=BRIDGE"
).replace(
    "BRIDGE", '{{ (index .Network.Interfaces 0).NodeAddress4 | replace "/" "_" }}'
)  # the address of the host on the bridge of the guest


async def add_names(env: KarpenterEnvironment) -> None:
    """The pool and the security group, and the Secrets of the node class."""
    for transport in env.transports.values():
        pve = PveWriter(SwitchableTransport(transport))
        await pve.pools.create("talos-k8s-proxmox")
        await pve.firewall.create_group("kubernetes")
    await env.stage.apply(SECRETS % base64.b64encode(BRIDGE_LABEL.encode()).decode())


async def until_ready(env: KarpenterEnvironment) -> None:
    async def ready() -> bool:
        found = (await env.node_class()).status.conditions
        return any(c.type == "Ready" and c.status == "True" for c in found)

    await env.stage.until("the class is ready", ready)


async def until_node(env: KarpenterEnvironment, name: str) -> NodeInstance:
    """Launch a claim until its node has joined, then end it."""
    claim = await env.claim(name)

    async def joined() -> NodeInstance | None:
        found = await env.provider.instance(claim)
        if found is None:
            await env.provider.launch(claim)
        if found is None or found.state is not InstanceState.LAUNCHED:
            return None
        nodes = (await env.kube.list(NODES)).items
        ids = {n["spec"].get("providerID"): n["metadata"]["labels"] for n in nodes}
        labels = ids.get(found.provider_id, {})
        assert not labels or re.fullmatch(r"10\.\d\.0\.\d_24", labels["bridge"]), labels
        return found if labels.get("rack") == "r1" else None

    instance: NodeInstance = await env.stage.until(f"the node of {name} has joined", joined)
    return instance


@pytest.mark.skipif(not CLASS.exists(), reason="the shared manifests are not here")
def test_the_documented_examples_of_the_provider_end_in_nodes() -> None:
    async def story() -> None:
        both = f"{CLASS.read_text()}\n{TEMPLATE.read_text()}"
        async with karpenter_environment(both, example_world(), trusted=True) as env:
            await add_names(env)
            await until_ready(env)
            first = await until_node(env, "unmanaged")
            assert first.image_id.endswith("/9000")
            (machine,) = await env.stage.guests()
            conf = (
                env.environment.engine.runtimes[machine.spec.region or ""]
                .region.guests[machine.spec.virtual_machine_id or 0]
                .conf
            )
            assert {"talos-k8s-proxmox", "karpenter"} <= set(str(conf["tags"]).split(";"))
            assert str(conf["scsi0"]).startswith("zfs:")

            async def made() -> bool:
                found = await env.kube.get(ProxmoxTemplate, "default")
                return any(
                    c.type == "Ready" and c.status == "True" for c in found.status.conditions
                )

            await env.stage.until("the template is made", made)
            ref = {"instanceTemplateRef": {"kind": "ProxmoxTemplate"}}
            await env.kube.merge(ProxmoxNodeClass, "default", {"spec": ref})

            async def selected() -> bool:
                zones = (await env.node_class()).status.selected_zones
                return bool(zones) and not any(z.endswith("/9000") for z in zones)

            await env.stage.until("the class uses the template", selected)
            second = await until_node(env, "managed")
            template = await env.kube.get(ProxmoxTemplate, "default")
            assert second.image_id in template.status.zones

    run_virtual(story())


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the shared manifests are not here")
def test_every_example_is_accepted_as_it_is() -> None:
    async def story() -> None:
        async with karpenter_environment() as env:
            count = 0
            for path in sorted(EXAMPLES.glob("*.yaml")):
                if "{{" in (text := path.read_text()):
                    continue  # a Go template
                objects = [o for o in yaml.safe_load_all(text) if o and "apiVersion" in o]
                await env.stage.apply(yaml.safe_dump_all(objects))
                count += len(objects)
            assert count >= 5

    run_virtual(story())
