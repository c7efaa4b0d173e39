"""What there is of a Machine: read from the management API and from its own cluster."""

from typing import Any

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import ContractRef
from moxwell.api.kinds import Resource
from moxwell.embedded.clusterapi.machine.plan import Seen
from moxwell.embedded.clusterapi.references import References
from moxwell.embedded.clusterapi.tenant_clients import Tenants
from moxwell.embedded.controllermanager.resources import NODES, PODS
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key

Json = dict[str, Any]
ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)


async def see(kube: Kube, refs: References, tenants: Tenants, machine: Machine) -> Seen:
    """Everything the plan asks about."""
    cluster = await kube.find(Cluster, machine.spec.cluster_name, machine.namespace)
    ending = cluster is None or cluster.deleting
    boot = await _part(refs, machine.spec.bootstrap.config_ref, machine)
    infra = await _part(refs, machine.spec.infrastructure_ref, machine)
    if ending and machine.deleting:
        return Seen(cluster_deleting=True, bootstrap=boot, infrastructure=infra)
    key = Key(machine.namespace, machine.spec.cluster_name)
    try:
        tenant = await tenants.find(key)
        node = await _node(tenant, machine, infra) if tenant else None
        pods, volumes = await _load(tenant, node) if machine.deleting else ((), 0)
    except MoxwellError:
        return Seen(bootstrap=boot, infrastructure=infra, tenant=False)
    return Seen(
        bootstrap=boot,
        infrastructure=infra,
        node=node,
        tenant=tenant is not None,
        pods=pods,
        attachments=volumes,
    )


async def _part(refs: References, ref: ContractRef | None, machine: Machine) -> Json | None:
    found = await refs.find(ref, machine.namespace)
    if ref is None or found is None or machine.deleting:
        return found
    return await refs.adopt(found, ref, machine, machine.spec.cluster_name)


async def _node(tenant: Kube, machine: Machine, infra: Json | None) -> Json | None:
    """The node with our provider ID; a node that has none yet is known by its guest's UUID."""
    known = machine.status.node_ref
    if known is not None and (node := await tenant.find(NODES, known.name)) is not None:
        return node
    provider = machine.spec.provider_id or ((infra or {}).get("spec") or {}).get("providerID")
    if not provider:
        return None
    nodes = (await tenant.list(NODES)).items
    return next((n for n in nodes if n["spec"].get("providerID") == provider), None)


async def _load(tenant: Kube | None, node: Json | None) -> tuple[tuple[Json, ...], int]:
    if tenant is None or node is None:
        return (), 0
    name = node["metadata"]["name"]
    pods = (await tenant.list(PODS, fields={"spec.nodeName": name})).items
    held = (await tenant.list(ATTACHMENTS)).items
    return tuple(p for p in pods if must_leave(p)), sum(
        v["spec"].get("nodeName") == name for v in held
    )


def must_leave(pod: Json) -> bool:
    """Not a DaemonSet's, not a static one, not ended."""
    owners = pod["metadata"].get("ownerReferences") or ()
    mirror = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    ended = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return not (mirror or ended or any(o["kind"] in {"DaemonSet", "Node"} for o in owners))
