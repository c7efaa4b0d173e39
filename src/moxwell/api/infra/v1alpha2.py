"""
CAPMOX ``v1alpha2``: the hub's own words, less of them, and two other meanings of silence.

A clone is full unless told otherwise, and the providerID is ``proxmox://<uuid>``: that is what
clusters made with CAPMOX have in their Nodes, where it can never change. The schema states neither
as a default, else a reader that writes back would decide for the hub. Fields of CAPMOX's status
that we do not keep are declared here so that they survive.
"""

from typing import Any

from msgspec import field

from moxwell.api.infra import cluster, machine
from moxwell.api.infra.machine import CONTRACT, GROUP
from moxwell.api.infra.v1alpha1 import NodeLocations
from moxwell.api.kinds import Column, Object, kind

VERSION = "v1alpha2"


class ProxmoxMachineStatusV1Alpha2(machine.ProxmoxMachineStatus, frozen=True, kw_only=True):
    """What is true of a guest, and what CAPMOX noted."""

    task_ref: str | None = field(name="taskRef", default=None)
    retry_after: str | None = field(name="retryAfter", default=None)


class ProxmoxClusterStatusV1Alpha2(cluster.ProxmoxClusterStatus, frozen=True, kw_only=True):
    """What is true of the ground, and what CAPMOX noted."""

    node_locations: NodeLocations | None = field(name="nodeLocations", default=None)


class TemplatedClusterSpecV1Alpha2(cluster.ProxmoxClusterSpec, frozen=True, kw_only=True):
    """A cluster in a mould. CAPMOX's classes also say ``cloneSpec`` there, which nobody reads."""

    clone_spec: Any = field(name="cloneSpec", default=None)


class ProxmoxClusterTemplateResourceV1Alpha2(
    cluster.ProxmoxClusterTemplateResource, frozen=True, kw_only=True
):
    """What a cluster from this mould looks like."""

    spec: TemplatedClusterSpecV1Alpha2 = field(default_factory=TemplatedClusterSpecV1Alpha2)


class ProxmoxClusterTemplateSpecV1Alpha2(
    cluster.ProxmoxClusterTemplateSpec, frozen=True, kw_only=True
):
    """The mould."""

    template: ProxmoxClusterTemplateResourceV1Alpha2 = field(
        default_factory=ProxmoxClusterTemplateResourceV1Alpha2
    )


_FACTS: dict[str, Any] = {
    "group": GROUP,
    "version": VERSION,
    "categories": ("cluster-api",),
    "labels": CONTRACT,
    "storage": False,
}
_READY = Column("Ready", ".status.conditions[?(@.type=='Ready')].status")


@kind(
    name="ProxmoxCluster",
    plural="proxmoxclusters",
    short=("moxc",),
    status=True,
    columns=(_READY,),
    **_FACTS,
)
class ProxmoxClusterV1Alpha2(Object, frozen=True, kw_only=True):
    """A cluster as CAPMOX v1alpha2 writes it."""

    spec: cluster.ProxmoxClusterSpec = field(default_factory=cluster.ProxmoxClusterSpec)
    status: ProxmoxClusterStatusV1Alpha2 = field(default_factory=ProxmoxClusterStatusV1Alpha2)


@kind(name="ProxmoxClusterTemplate", plural="proxmoxclustertemplates", short=("pct",), **_FACTS)
class ProxmoxClusterTemplateV1Alpha2(Object, frozen=True, kw_only=True):
    """A mould of clusters as CAPMOX v1alpha2 writes it."""

    spec: ProxmoxClusterTemplateSpecV1Alpha2 = field(
        default_factory=ProxmoxClusterTemplateSpecV1Alpha2
    )


@kind(
    name="ProxmoxMachine",
    plural="proxmoxmachines",
    short=("moxm",),
    status=True,
    columns=(_READY,),
    **_FACTS,
)
class ProxmoxMachineV1Alpha2(Object, frozen=True, kw_only=True):
    """A machine as CAPMOX v1alpha2 writes it."""

    spec: machine.ProxmoxMachineSpec = field(default_factory=machine.ProxmoxMachineSpec)
    status: ProxmoxMachineStatusV1Alpha2 = field(default_factory=ProxmoxMachineStatusV1Alpha2)


@kind(
    name="ProxmoxMachineTemplate",
    plural="proxmoxmachinetemplates",
    short=("pmt",),
    status=True,
    **_FACTS,
)
class ProxmoxMachineTemplateV1Alpha2(Object, frozen=True, kw_only=True):
    """A mould of machines as CAPMOX v1alpha2 writes it."""

    spec: machine.ProxmoxMachineTemplateSpec = field(
        default_factory=machine.ProxmoxMachineTemplateSpec
    )
    status: machine.ProxmoxMachineTemplateStatus = field(
        default_factory=machine.ProxmoxMachineTemplateStatus
    )


KINDS = (
    ProxmoxClusterV1Alpha2,
    ProxmoxClusterTemplateV1Alpha2,
    ProxmoxMachineV1Alpha2,
    ProxmoxMachineTemplateV1Alpha2,
)
