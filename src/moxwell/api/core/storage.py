"""
PersistentVolume, PersistentVolumeClaim and the kinds of storage.k8s.io that the CSI driver uses.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import field

from moxwell.api.capi.shared import ObjectReference
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import Value

QuantityText = str | int
STORAGE = "storage.k8s.io"


class CsiSource(Value, frozen=True, kw_only=True):
    """The CSI source of a PersistentVolume."""

    driver: str
    volume_handle: str = field(name="volumeHandle")
    fs_type: str = field(name="fsType", default="")
    read_only: bool = field(name="readOnly", default=False)
    volume_attributes: Mapping[str, str] = field(name="volumeAttributes", default_factory=dict)


class NodeSelectorRequirement(Value, frozen=True, kw_only=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Value, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = field(
        name="matchExpressions", default=()
    )
    match_fields: tuple[NodeSelectorRequirement, ...] = field(name="matchFields", default=())


class NodeSelector(Value, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = field(name="nodeSelectorTerms", default=())


class VolumeNodeAffinity(Value, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Value, frozen=True, kw_only=True):
    """The desired state of a PersistentVolume."""

    capacity: Mapping[str, QuantityText] = field(default_factory=dict)
    access_modes: tuple[str, ...] = field(name="accessModes", default=())
    persistent_volume_reclaim_policy: str = field(name="persistentVolumeReclaimPolicy", default="")
    storage_class_name: str = field(name="storageClassName", default="")
    volume_mode: str | None = field(name="volumeMode", default=None)
    csi: CsiSource | None = None
    claim_ref: ObjectReference | None = field(name="claimRef", default=None)
    node_affinity: VolumeNodeAffinity | None = field(name="nodeAffinity", default=None)


class PhaseStatus(Value, frozen=True, kw_only=True):
    phase: str = ""


@kind(
    group="", version="v1", plural="persistentvolumes", scope="Cluster", status=True, builtin=True
)
class PersistentVolume(Object, frozen=True, kw_only=True):
    """A core/v1 PersistentVolume."""

    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PhaseStatus = field(default_factory=PhaseStatus)


class VolumeResourceRequirements(Value, frozen=True, kw_only=True):
    requests: Mapping[str, QuantityText] = field(default_factory=dict)
    limits: Mapping[str, QuantityText] = field(default_factory=dict)


class PersistentVolumeClaimSpec(Value, frozen=True, kw_only=True):
    """The desired state of a PersistentVolumeClaim."""

    access_modes: tuple[str, ...] = field(name="accessModes", default=())
    resources: VolumeResourceRequirements = field(default_factory=VolumeResourceRequirements)
    storage_class_name: str | None = field(name="storageClassName", default=None)
    volume_name: str = field(name="volumeName", default="")
    volume_mode: str | None = field(name="volumeMode", default=None)
    data_source: Mapping[str, Any] | None = field(name="dataSource", default=None)


class PersistentVolumeClaimStatus(Value, frozen=True, kw_only=True):
    phase: str = ""
    capacity: Mapping[str, QuantityText] = field(default_factory=dict)
    access_modes: tuple[str, ...] = field(name="accessModes", default=())


@kind(group="", version="v1", plural="persistentvolumeclaims", status=True, builtin=True)
class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """A core/v1 PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class TopologyExpression(Value, frozen=True, kw_only=True):
    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Value, frozen=True, kw_only=True):
    match_label_expressions: tuple[TopologyExpression, ...] = field(
        name="matchLabelExpressions", default=()
    )


@kind(group=STORAGE, version="v1", plural="storageclasses", scope="Cluster", builtin=True)
class StorageClass(Object, frozen=True, kw_only=True):
    """A storage/v1 StorageClass."""

    provisioner: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    reclaim_policy: str | None = field(name="reclaimPolicy", default=None)
    volume_binding_mode: str | None = field(name="volumeBindingMode", default=None)
    allow_volume_expansion: bool | None = field(name="allowVolumeExpansion", default=None)
    mount_options: tuple[str, ...] = field(name="mountOptions", default=())
    allowed_topologies: tuple[TopologyTerm, ...] = field(name="allowedTopologies", default=())


class VolumeAttachmentSource(Value, frozen=True, kw_only=True):
    persistent_volume_name: str | None = field(name="persistentVolumeName", default=None)


class VolumeAttachmentSpec(Value, frozen=True, kw_only=True):
    attacher: str
    node_name: str = field(name="nodeName")
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)


class VolumeAttachmentStatus(Value, frozen=True, kw_only=True):
    attached: bool = False
    attachment_metadata: Mapping[str, str] = field(name="attachmentMetadata", default_factory=dict)


@kind(
    group=STORAGE,
    version="v1",
    plural="volumeattachments",
    scope="Cluster",
    status=True,
    builtin=True,
)
class VolumeAttachment(Object, frozen=True, kw_only=True):
    """A storage/v1 VolumeAttachment: a volume to be attached to a node."""

    spec: VolumeAttachmentSpec
    status: VolumeAttachmentStatus = field(default_factory=VolumeAttachmentStatus)


class VolumeNodeResources(Value, frozen=True, kw_only=True):
    count: int | None = None


class CsiNodeDriver(Value, frozen=True, kw_only=True):
    """A CSI driver registered on a node."""

    name: str
    node_id: str = field(name="nodeID")
    topology_keys: tuple[str, ...] = field(name="topologyKeys", default=())
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(Value, frozen=True, kw_only=True):
    drivers: tuple[CsiNodeDriver, ...] = ()


@kind(group=STORAGE, version="v1", plural="csinodes", scope="Cluster", builtin=True)
class CSINode(Object, frozen=True, kw_only=True):
    """A storage/v1 CSINode: the CSI drivers registered on a node."""

    spec: CsiNodeSpec = field(default_factory=CsiNodeSpec)


class CsiDriverSpec(Value, frozen=True, kw_only=True):
    """The capabilities of a CSI driver."""

    attach_required: bool | None = field(name="attachRequired", default=None)
    pod_info_on_mount: bool | None = field(name="podInfoOnMount", default=None)
    storage_capacity: bool | None = field(name="storageCapacity", default=None)
    fs_group_policy: str | None = field(name="fsGroupPolicy", default=None)
    volume_lifecycle_modes: tuple[str, ...] = field(name="volumeLifecycleModes", default=())


@kind(group=STORAGE, version="v1", plural="csidrivers", scope="Cluster", builtin=True)
class CSIDriver(Object, frozen=True, kw_only=True):
    """A storage/v1 CSIDriver."""

    spec: CsiDriverSpec = field(default_factory=CsiDriverSpec)


KINDS: tuple[type[Object], ...] = (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
    CSINode,
    CSIDriver,
)
