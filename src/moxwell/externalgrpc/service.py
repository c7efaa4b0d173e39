"""
The calls of Cluster Autoscaler, answered from Cluster API's objects.

What is read is kept until ``Refresh``, which Cluster Autoscaler calls before every loop, and until
a write. Every change of a size is one write with the version that it was computed from.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.errors import Missing
from moxwell.externalgrpc import node_groups, template_node
from moxwell.externalgrpc.group_options import chosen_options
from moxwell.externalgrpc.instances import GroupInstance, instance_of
from moxwell.externalgrpc.node_groups import GroupInventory, ScalableGroup
from moxwell.externalgrpc.wire import externalgrpc_pb2 as wire
from moxwell.kube.client import Kube
from moxwell.kube.errors import WriteConflict

log = structlog.get_logger(__name__)
TRIES = 5


class CloudProviderService:
    """The service ``CloudProvider`` for one cluster; methods have the names of its calls."""

    def __init__(self, kube: Kube, namespace: str, cluster: str) -> None:
        """``kube`` is the management cluster."""
        self._kube, self._namespace, self._cluster = kube, namespace, cluster
        self._known: GroupInventory | None = None

    # ---- the provider

    async def node_groups(self, request: Any) -> Any:
        found = await self._inventory()
        return wire.NodeGroupsResponse(nodeGroups=[_group(g) for g in found.groups.values()])

    async def node_group_for_node(self, request: Any) -> Any:
        found = (await self._inventory()).of_node(request.node.providerID, request.node.name)
        group = _group(found[0]) if found is not None else wire.NodeGroup()
        return wire.NodeGroupForNodeResponse(nodeGroup=group)

    async def pricing_node_price(self, request: Any) -> Any:
        found = (await self._inventory()).of_node(request.node.providerID, request.node.name)
        group = found[0] if found is not None else await self._template_of(request.node)
        seconds = _seconds(request)
        amount = template_node.price(template_node.capacity_of(group), seconds)
        return wire.PricingNodePriceResponse(price=amount)

    async def _template_of(self, node: Any) -> ScalableGroup:
        """The group whose template node this is; prices of those are asked for too."""
        for group in (await self._inventory()).groups.values():
            if node.name.startswith(f"{group.deployment.name}-template"):
                return group
        raise Missing(f"node {node.name} belongs to no node group")

    async def pricing_pod_price(self, request: Any) -> Any:
        amount = template_node.price(
            template_node.pod_requests(request.pod_bytes), _seconds(request)
        )
        return wire.PricingPodPriceResponse(price=amount)

    async def gpu_label(self, request: Any) -> Any:
        return wire.GPULabelResponse(label="")

    async def get_available_gpu_types(self, request: Any) -> Any:
        return wire.GetAvailableGPUTypesResponse()

    async def cleanup(self, request: Any) -> Any:
        return wire.CleanupResponse()

    async def refresh(self, request: Any) -> Any:
        self._known = None
        return wire.RefreshResponse()

    # ---- a node group

    async def node_group_target_size(self, request: Any) -> Any:
        group = (await self._inventory()).get(request.id)
        return wire.NodeGroupTargetSizeResponse(targetSize=group.size)

    async def node_group_increase_size(self, request: Any) -> Any:
        async def increase() -> None:
            group = await self._current(request.id)
            await self._resize(group, node_groups.increased(group, request.delta))

        await self._repeated(increase)
        return wire.NodeGroupIncreaseSizeResponse()

    async def node_group_decrease_target_size(self, request: Any) -> Any:
        async def decrease() -> None:
            group = await self._current(request.id)
            await self._resize(group, node_groups.decreased(group, request.delta))

        await self._repeated(decrease)
        return wire.NodeGroupDecreaseTargetSizeResponse()

    async def node_group_delete_nodes(self, request: Any) -> Any:
        nodes = [(n.providerID, n.name) for n in request.nodes]

        async def delete() -> None:
            group = await self._current(request.id)
            found = node_groups.deletion(group, nodes)
            mark = {"metadata": {"annotations": {node_groups.DELETE_MACHINE: "true"}}}
            for machine in found.machines:
                await self._kube.merge(Machine, machine.name, mark, machine.namespace)
            if found.machines:
                record = {node_groups.DELETING: ",".join(found.recorded)}
                await self._resize(group, found.size, record)

        await self._repeated(delete)
        return wire.NodeGroupDeleteNodesResponse()

    async def node_group_nodes(self, request: Any) -> Any:
        found = await self._inventory()
        machines = found.get(request.id).machines
        rows = [instance_of(m, found.proxmox.get(f"{m.namespace}/{m.name}")) for m in machines]
        return wire.NodeGroupNodesResponse(instances=[_instance(row) for row in rows])

    async def node_group_template_node_info(self, request: Any) -> Any:
        group = (await self._inventory()).get(request.id)
        data = template_node.template_node(group)
        return wire.NodeGroupTemplateNodeInfoResponse(nodeBytes=data)

    async def node_group_get_options(self, request: Any) -> Any:
        group = (await self._inventory()).get(request.id)
        options: Any = wire.NodeGroupAutoscalingOptions()
        options.CopyFrom(request.defaults)
        for name, value in chosen_options(group.deployment.metadata.annotations).items():
            if hasattr(value, "CopyFrom") or hasattr(value, "seconds"):
                getattr(options, name).CopyFrom(value)
            else:
                setattr(options, name, value)
        return wire.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=options)

    # ---- reading and writing

    async def _inventory(self) -> GroupInventory:
        if self._known is None:
            self._known = await self._read()
        return self._known

    async def _current(self, ident: str) -> ScalableGroup:
        """A group as it is now: sizes are computed from nothing older."""
        self._known = None
        return (await self._inventory()).get(ident)

    async def _read(self) -> GroupInventory:
        where = self._namespace
        found = node_groups.inventory(
            self._cluster,
            (await self._kube.list(MachineDeployment, where)).items,
            (await self._kube.list(Machine, where)).items,
            (await self._kube.list(ProxmoxMachineTemplate, where)).items,
            (await self._kube.list(ProxmoxMachine, where)).items,
        )
        for problem in found.problems:
            log.warning("node group refused", error=problem)
        return found

    async def _resize(self, group: ScalableGroup, size: int, notes: Any = None) -> None:
        meta = group.deployment.metadata
        change = {
            "metadata": {"resourceVersion": meta.resource_version, "annotations": notes or {}},
            "spec": {"replicas": size},
        }
        self._known = None
        await self._kube.merge(MachineDeployment, meta.name, change, meta.namespace)
        log.info("node group resized", group=group.id, size=size, before=group.size)

    async def _repeated(self, write: Callable[[], Awaitable[None]]) -> None:
        """Compute and write again if somebody else has changed the group."""
        for left in reversed(range(TRIES)):
            try:
                await write()
            except WriteConflict:
                if not left:
                    raise
            else:
                return


def _seconds(request: Any) -> float:
    start, end = request.startTimestamp, request.endTimestamp
    return max(0.0, float(end.ToMicroseconds() - start.ToMicroseconds()) / 1e6)


def _group(group: ScalableGroup) -> Any:
    return wire.NodeGroup(
        id=group.id, minSize=group.least, maxSize=group.most, debug=group.described
    )


def _instance(row: GroupInstance) -> Any:
    error = wire.InstanceErrorInfo(
        errorCode=row.error,
        errorMessage=row.message,
        instanceErrorClass=int(row.error_class) if row.error else 0,
    )
    state: Any = int(row.phase)
    status = wire.InstanceStatus(instanceState=state, errorInfo=error)
    return wire.Instance(id=row.id, status=status)
