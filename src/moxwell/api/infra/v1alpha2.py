"""
The infrastructure kinds as in CAPMOX ``v1alpha2``: the hub's fields with two other defaults.

A clone is full by default and the providerID is ``proxmox://<uuid>``, which Nodes of clusters
created by CAPMOX contain and which cannot change. The schema does not state these defaults, because
a client that writes back a defaulted object would set them in the hub. Status fields of CAPMOX that
the hub lacks are declared so that they are preserved.
"""

from typing import Any

from msgspec import field

from moxwell.api.infra import cluster, machine
from moxwell.api.infra.machine import CONTRACT, GROUP
from moxwell.api.infra.v1alpha1 import NodeLocations
from moxwell.api.kinds import Column, Object, kind

VERSION = "v1alpha2"


class ProxmoxMachineStatusV1Alpha2(machine.ProxmoxMachineStatus, frozen=True, kw_only=True):
    """The observed state of a ProxmoxMachine, with CAPMOX's additional fields."""

    task_ref: str | None = field(name="taskRef", default=None)
    retry_after: str | None = field(name="retryAfter", default=None)


class ProxmoxClusterStatusV1Alpha2(cluster.ProxmoxClusterStatus, frozen=True, kw_only=True):
    """The observed state of a ProxmoxCluster, with CAPMOX's additional fields."""

    node_locations: NodeLocations | None = field(name="nodeLocations", default=None)


class TemplatedClusterSpecV1Alpha2(cluster.ProxmoxClusterSpec, frozen=True, kw_only=True):
    """
    The spec of a templated cluster, with ``cloneSpec``, which CAPMOX's ClusterClasses set and no
    controller reads.
    """

    clone_spec: Any = field(name="cloneSpec", default=None)


class ProxmoxClusterTemplateResourceV1Alpha2(
    cluster.ProxmoxClusterTemplateResource, frozen=True, kw_only=True
):
    """The metadata and spec of clusters created from the template, in v1alpha2."""

    spec: TemplatedClusterSpecV1Alpha2 = field(default_factory=TemplatedClusterSpecV1Alpha2)


class ProxmoxClusterTemplateSpecV1Alpha2(
    cluster.ProxmoxClusterTemplateSpec, frozen=True, kw_only=True
):
    """The desired state of a ProxmoxClusterTemplate, in v1alpha2."""

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
    """A ProxmoxCluster of CAPMOX v1alpha2."""

    spec: cluster.ProxmoxClusterSpec = field(default_factory=cluster.ProxmoxClusterSpec)
    status: ProxmoxClusterStatusV1Alpha2 = field(default_factory=ProxmoxClusterStatusV1Alpha2)


@kind(name="ProxmoxClusterTemplate", plural="proxmoxclustertemplates", short=("pct",), **_FACTS)
class ProxmoxClusterTemplateV1Alpha2(Object, frozen=True, kw_only=True):
    """A ProxmoxClusterTemplate of CAPMOX v1alpha2."""

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
    """A ProxmoxMachine of CAPMOX v1alpha2."""

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
    """A ProxmoxMachineTemplate of CAPMOX v1alpha2."""

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
