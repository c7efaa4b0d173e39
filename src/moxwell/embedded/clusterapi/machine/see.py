"""Reads the parts of a Machine from the management API and from the API of its cluster."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import ContractRef
from moxwell.embedded.clusterapi.machine.plan import (
    NODE_NAME,
    ObservedMachine,
    is_unreachable,
    tenant_key,
)
from moxwell.embedded.clusterapi.machine.tenant_nodes import SharedNodeLists
from moxwell.embedded.clusterapi.references import (
    ReferenceResolver,
    adoption,
)
from moxwell.embedded.controllermanager.resources import NODES, PODS, VOLUME_ATTACHMENTS
from moxwell.errors import MoxwellError
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.unstructured import Unstructured

Json = dict[str, Any]
DUE = timedelta(seconds=1)
FindTenant = Callable[[Key], Awaitable[Reader | None]]


async def see_machine(
    machine: Machine,
    reader: Reader,
    resolver: ReferenceResolver,
    find_tenant: FindTenant,
    nodes: SharedNodeLists,
    now: datetime,
) -> ObservedMachine:
    """The parts of a Machine; a tenant that does not answer is reported, not raised."""
    spec = machine.spec
    bootstrap = await _part(machine, spec.bootstrap.config_ref, reader, resolver)
    infrastructure = await _part(machine, spec.infrastructure_ref, reader, resolver)
    if machine.deleting:
        cluster = await reader.find(Cluster, spec.cluster_name, machine.namespace)
        if cluster is None or cluster.deleting:
            return ObservedMachine(
                now=now, cluster_deleting=True, bootstrap=bootstrap, infrastructure=infrastructure
            )
    try:
        tenant = await find_tenant(tenant_key(machine))
        node = await _node(tenant, nodes, machine, infrastructure) if tenant else None
        pods, attachments = await _load(tenant, node, now) if machine.deleting else ((), 0)
    except MoxwellError:
        return ObservedMachine(
            now=now, bootstrap=bootstrap, infrastructure=infrastructure, tenant_answers=False
        )
    return ObservedMachine(
        now=now,
        bootstrap=bootstrap,
        infrastructure=infrastructure,
        node=node,
        tenant_answers=tenant is not None,
        pods=pods,
        attachments=attachments,
    )


async def _part(
    machine: Machine, ref: ContractRef | None, reader: Reader, resolver: ReferenceResolver
) -> Unstructured | None:
    """A provider's object; live if it is missing, not adopted yet, or about to be deleted."""
    if not machine.deleting:
        cached = resolver.find_cached(ref, machine.namespace)
        if cached is not None and adoption(cached, machine, machine.spec.cluster_name) is None:
            return cached
    return await resolver.find(reader, ref, machine.namespace)


async def _node(
    tenant: Reader,
    nodes: SharedNodeLists,
    machine: Machine,
    infrastructure: Unstructured | None,
) -> Json | None:
    """The recorded node, or the one with the Machine's provider ID."""
    recorded = machine.metadata.annotations.get(NODE_NAME, "")
    if recorded and is_settled(machine):
        found = await nodes.named(tenant_key(machine), tenant, recorded)
        if found is not None:
            return found
    if recorded and (node := await tenant.find(NODES, recorded)) is not None:
        return node
    provided = infrastructure.obj.get("spec") or {} if infrastructure else {}
    provider = machine.spec.provider_id or provided.get("providerID")
    if not provider:
        return None
    return await nodes.find(tenant_key(machine), tenant, provider)


def is_settled(machine: Machine) -> bool:
    """Whether the node is only checked: it is initialized, and nothing is about to change it."""
    return machine.status.node_ref is not None and not machine.deleting


async def _load(
    tenant: Reader | None, node: Json | None, now: datetime
) -> tuple[tuple[tuple[str, str], ...], int]:
    """
    The pods to evict from the node, and the number of volumes attached to it.

    As in Cluster API a silent kubelet is not waited for: neither for pods whose deletion is due,
    nor for volumes.
    """
    if tenant is None or node is None:
        return (), 0
    name = node["metadata"]["name"]
    pods = (await tenant.list(PODS, fields={"spec.nodeName": name})).items
    attachments = (await tenant.list(VOLUME_ATTACHMENTS)).items
    attached = sum(a["spec"].get("nodeName") == name for a in attachments)
    silent = is_unreachable(node)
    left = [p["metadata"] for p in pods if must_be_evicted(p) and not (silent and is_due(p, now))]
    return tuple((m["namespace"], m["name"]) for m in left), 0 if silent else attached


def is_due(pod: Json, now: datetime) -> bool:
    """Whether a pod should have ended by now."""
    at = pod["metadata"].get("deletionTimestamp")
    return at is not None and now - datetime.fromisoformat(at) > DUE


def must_be_evicted(pod: Json) -> bool:
    """Neither finished, nor a static pod, nor of a DaemonSet."""
    owners = pod["metadata"].get("ownerReferences") or ()
    mirror = "kubernetes.io/config.mirror" in (pod["metadata"].get("annotations") or {})
    finished = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return not (mirror or finished or any(o["kind"] in {"DaemonSet", "Node"} for o in owners))
