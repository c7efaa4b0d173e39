"""
The infrastructure kinds in ``v1beta1``, with short names: ``nodeName``, ``template``, ``cores``,
``memory``, ``diskSize``.

Every field of the hub is also accepted; a short field takes precedence over the hub's.
"""

from typing import Annotated, Any

from msgspec import Meta, field

from moxwell.api.infra import cluster, machine
from moxwell.api.infra.machine import CONTRACT, GROUP
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import TemplateMeta, Value

VERSION = "v1beta1"


class ProxmoxMachineSpecV1Beta1(machine.ProxmoxMachineSpec, frozen=True, kw_only=True):
    """The desired state of a ProxmoxMachine, with short names."""

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


@kind(
    name="ProxmoxCluster",
    plural="proxmoxclusters",
    short=("moxc",),
    status=True,
    columns=(_READY,),
    **_FACTS,
)
class ProxmoxClusterV1Beta1(Object, frozen=True, kw_only=True):
    """A ProxmoxCluster of v1beta1."""

    spec: cluster.ProxmoxClusterSpec = field(default_factory=cluster.ProxmoxClusterSpec)
    status: cluster.ProxmoxClusterStatus = field(default_factory=cluster.ProxmoxClusterStatus)


@kind(name="ProxmoxClusterTemplate", plural="proxmoxclustertemplates", short=("pct",), **_FACTS)
class ProxmoxClusterTemplateV1Beta1(Object, frozen=True, kw_only=True):
    """A ProxmoxClusterTemplate of v1beta1."""

    spec: cluster.ProxmoxClusterTemplateSpec = field(
        default_factory=cluster.ProxmoxClusterTemplateSpec
    )


@kind(
    name="ProxmoxMachine",
    plural="proxmoxmachines",
    short=("moxm",),
    status=True,
    columns=(_READY,),
    **_FACTS,
)
class ProxmoxMachineV1Beta1(Object, frozen=True, kw_only=True):
    """A ProxmoxMachine of v1beta1, with short names."""

    spec: ProxmoxMachineSpecV1Beta1 = field(default_factory=ProxmoxMachineSpecV1Beta1)
    status: machine.ProxmoxMachineStatus = field(default_factory=machine.ProxmoxMachineStatus)


class ProxmoxMachineTemplateResourceV1Beta1(Value, frozen=True, kw_only=True):
    """The metadata and spec of machines created from the template, in v1beta1."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: ProxmoxMachineSpecV1Beta1 = field(default_factory=ProxmoxMachineSpecV1Beta1)


class ProxmoxMachineTemplateSpecV1Beta1(Value, frozen=True, kw_only=True):
    """The desired state of a ProxmoxMachineTemplate, in v1beta1."""

    template: ProxmoxMachineTemplateResourceV1Beta1 = field(
        default_factory=ProxmoxMachineTemplateResourceV1Beta1
    )


@kind(
    name="ProxmoxMachineTemplate",
    plural="proxmoxmachinetemplates",
    short=("pmt",),
    status=True,
    **_FACTS,
)
class ProxmoxMachineTemplateV1Beta1(Object, frozen=True, kw_only=True):
    """A ProxmoxMachineTemplate of v1beta1, with short names."""

    spec: ProxmoxMachineTemplateSpecV1Beta1 = field(
        default_factory=ProxmoxMachineTemplateSpecV1Beta1
    )
    status: machine.ProxmoxMachineTemplateStatus = field(
        default_factory=machine.ProxmoxMachineTemplateStatus
    )


KINDS = (
    ProxmoxClusterV1Beta1,
    ProxmoxClusterTemplateV1Beta1,
    ProxmoxMachineV1Beta1,
    ProxmoxMachineTemplateV1Beta1,
)
