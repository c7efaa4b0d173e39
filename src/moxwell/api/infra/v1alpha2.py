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


class MachineStatus(machine.MachineStatus, frozen=True, kw_only=True):
    """What is true of a guest, and what CAPMOX noted."""

    task_ref: str | None = field(name="taskRef", default=None)
    retry_after: str | None = field(name="retryAfter", default=None)


class ClusterStatus(cluster.ClusterStatus, frozen=True, kw_only=True):
    """What is true of the ground, and what CAPMOX noted."""

    node_locations: NodeLocations | None = field(name="nodeLocations", default=None)


class MouldSpec(cluster.ClusterSpec, frozen=True, kw_only=True):
    """A cluster in a mould. CAPMOX's classes also say ``cloneSpec`` there, which nobody reads."""

    clone_spec: Any = field(name="cloneSpec", default=None)


class MouldResource(cluster.ClusterResource, frozen=True, kw_only=True):
    """What a cluster from this mould looks like."""

    spec: MouldSpec = field(default_factory=MouldSpec)


class MouldTemplateSpec(cluster.ClusterTemplateSpec, frozen=True, kw_only=True):
    """The mould."""

    template: MouldResource = field(default_factory=MouldResource)


_FACTS: dict[str, Any] = {
    "group": GROUP,
    "version": VERSION,
    "categories": ("cluster-api",),
    "labels": CONTRACT,
    "storage": False,
}
_READY = Column("Ready", ".status.conditions[?(@.type=='Ready')].status")


@kind(plural="proxmoxclusters", short=("moxc",), status=True, columns=(_READY,), **_FACTS)
class ProxmoxCluster(Object, frozen=True, kw_only=True):
    """A cluster as CAPMOX v1alpha2 writes it."""

    spec: cluster.ClusterSpec = field(default_factory=cluster.ClusterSpec)
    status: ClusterStatus = field(default_factory=ClusterStatus)


@kind(plural="proxmoxclustertemplates", short=("pct",), **_FACTS)
class ProxmoxClusterTemplate(Object, frozen=True, kw_only=True):
    """A mould of clusters as CAPMOX v1alpha2 writes it."""

    spec: MouldTemplateSpec = field(default_factory=MouldTemplateSpec)


@kind(plural="proxmoxmachines", short=("moxm",), status=True, columns=(_READY,), **_FACTS)
class ProxmoxMachine(Object, frozen=True, kw_only=True):
    """A machine as CAPMOX v1alpha2 writes it."""

    spec: machine.MachineSpec = field(default_factory=machine.MachineSpec)
    status: MachineStatus = field(default_factory=MachineStatus)


@kind(plural="proxmoxmachinetemplates", short=("pmt",), status=True, **_FACTS)
class ProxmoxMachineTemplate(Object, frozen=True, kw_only=True):
    """A mould of machines as CAPMOX v1alpha2 writes it."""

    spec: machine.MachineTemplateSpec = field(default_factory=machine.MachineTemplateSpec)
    status: machine.MachineTemplateStatus = field(default_factory=machine.MachineTemplateStatus)


KINDS = (ProxmoxCluster, ProxmoxClusterTemplate, ProxmoxMachine, ProxmoxMachineTemplate)
