"""
The short form: ``nodeName``, ``template``, ``cores``, ``memory``, ``diskSize``; ``server``.

What people write who only want a machine. Every field of the hub may stand beside the short ones;
where both say something, the short one is meant.
"""

from typing import Annotated, Any

from msgspec import Meta, field

from moxwell.api.infra import cluster, machine
from moxwell.api.infra.machine import CONTRACT, GROUP
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import TemplateMeta, Value

VERSION = "v1beta1"


class MachineSpec(machine.MachineSpec, frozen=True, kw_only=True):
    """One guest, in few words."""

    node_name: str | None = field(name="nodeName", default=None)  # the Proxmox host
    template: str | None = None  # the template's name
    cores: Annotated[int, Meta(ge=1)] | None = None
    memory: Annotated[int, Meta(ge=0)] | None = None  # MiB
    disk_size: Annotated[int, Meta(ge=5)] | None = field(name="diskSize", default=None)  # GiB


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
    """A cluster in few words: ``server`` and an endpoint."""

    spec: cluster.ClusterSpec = field(default_factory=cluster.ClusterSpec)
    status: cluster.ClusterStatus = field(default_factory=cluster.ClusterStatus)


@kind(plural="proxmoxclustertemplates", short=("pct",), **_FACTS)
class ProxmoxClusterTemplate(Object, frozen=True, kw_only=True):
    """A mould of clusters."""

    spec: cluster.ClusterTemplateSpec = field(default_factory=cluster.ClusterTemplateSpec)


@kind(plural="proxmoxmachines", short=("moxm",), status=True, columns=(_READY,), **_FACTS)
class ProxmoxMachine(Object, frozen=True, kw_only=True):
    """A machine in few words."""

    spec: MachineSpec = field(default_factory=MachineSpec)
    status: machine.MachineStatus = field(default_factory=machine.MachineStatus)


class MachineResource(Value, frozen=True, kw_only=True):
    """What a machine from this template looks like."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: MachineSpec = field(default_factory=MachineSpec)


class MachineTemplateSpec(Value, frozen=True, kw_only=True):
    """The mould."""

    template: MachineResource = field(default_factory=MachineResource)


@kind(plural="proxmoxmachinetemplates", short=("pmt",), status=True, **_FACTS)
class ProxmoxMachineTemplate(Object, frozen=True, kw_only=True):
    """A mould of machines, in few words."""

    spec: MachineTemplateSpec = field(default_factory=MachineTemplateSpec)
    status: machine.MachineTemplateStatus = field(default_factory=machine.MachineTemplateStatus)


KINDS = (ProxmoxCluster, ProxmoxClusterTemplate, ProxmoxMachine, ProxmoxMachineTemplate)
