"""
KamajiControlPlane (v1alpha1 and v1alpha2) and KubeadmControlPlane (v1beta1 and v1beta2).

The versions of KamajiControlPlane differ in status and defaults, not in the part of the spec that
Moxwell reads. Upstream serves one of the two; the embedded API server serves both.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import field

from moxwell.api.capi.bootstrap import KubeadmConfigSpec
from moxwell.api.capi.core import MachineDeletion
from moxwell.api.capi.machinesets import AGE, SCALE
from moxwell.api.capi.shared import CONTROL_PLANE, UPSTREAM, APIEndpoint, ContractRef
from moxwell.api.conditions import Condition
from moxwell.api.conversion import KindConversion, Spoke
from moxwell.api.conversion_tables import ConversionTable, FieldMove
from moxwell.api.kamaji import KubeletSpec
from moxwell.api.kinds import Column, Object, kind
from moxwell.api.meta import TemplateMeta, Value


class NetworkComponent(Value, frozen=True, kw_only=True):
    """How the hosted control plane is exposed."""

    service_type: str = field(name="serviceType", default="")
    service_address: str = field(name="serviceAddress", default="")
    advertise_address: str = field(name="advertiseAddress", default="")
    service_labels: Mapping[str, str] = field(name="serviceLabels", default_factory=dict)
    service_annotations: Mapping[str, str] = field(name="serviceAnnotations", default_factory=dict)
    cert_sans: tuple[str, ...] = field(name="certSANs", default=())
    dns_service_ips: tuple[str, ...] = field(name="dnsServiceIPs", default=())


class KamajiControlPlaneSpec(Value, frozen=True, kw_only=True):
    """A control plane that runs as pods or processes, not on machines."""

    data_store_name: str = field(name="dataStoreName", default="")
    replicas: int | None = None
    version: str = ""
    addons: Mapping[str, Any] = field(default_factory=dict)
    admission_controllers: tuple[str, ...] = field(name="admissionControllers", default=())
    network: NetworkComponent = field(default_factory=NetworkComponent)
    kubelet: KubeletSpec = field(default_factory=KubeletSpec)
    deployment: Mapping[str, Any] = field(default_factory=dict)
    control_plane_endpoint: APIEndpoint = field(
        name="controlPlaneEndpoint", default_factory=APIEndpoint
    )


class ControlPlaneInitialization(Value, frozen=True, kw_only=True):
    """Initialization milestones; once true they stay true."""

    control_plane_initialized: bool | None = field(name="controlPlaneInitialized", default=None)


class ControlPlaneStatus(Value, frozen=True, kw_only=True):
    """The observed state of a control plane."""

    conditions: tuple[Condition, ...] = ()
    initialization: ControlPlaneInitialization = field(default_factory=ControlPlaneInitialization)
    ready: bool | None = None
    external_managed_control_plane: bool | None = field(
        name="externalManagedControlPlane", default=None
    )
    replicas: int | None = None
    ready_replicas: int | None = field(name="readyReplicas", default=None)
    available_replicas: int | None = field(name="availableReplicas", default=None)
    up_to_date_replicas: int | None = field(name="upToDateReplicas", default=None)
    selector: str = ""
    version: str = ""
    observed_generation: int = field(name="observedGeneration", default=0)


class KamajiControlPlaneStatusV1Alpha1(Value, frozen=True, kw_only=True):
    """The observed state of a KamajiControlPlane, in v1alpha1."""

    initialized: bool = False
    ready: bool = False
    external_managed_control_plane: bool = field(name="externalManagedControlPlane", default=False)
    replicas: int = 0
    ready_replicas: int = field(name="readyReplicas", default=0)
    updated_replicas: int = field(name="updatedReplicas", default=0)
    unavailable_replicas: int = field(name="unavailableReplicas", default=0)
    selector: str = ""
    version: str = ""
    conditions: tuple[Condition, ...] = ()


COLUMNS = (
    Column("Version", ".spec.version"),
    Column("Replicas", ".status.replicas", "integer"),
    Column("Ready", ".status.readyReplicas", "integer"),
    AGE,
)
KAMAJI: dict[str, Any] = {
    "group": CONTROL_PLANE,
    "plural": "kamajicontrolplanes",
    "name": "KamajiControlPlane",
    "short": ("ktcp",),
    "scale": SCALE,
    "columns": COLUMNS,
    "labels": {"cluster.x-k8s.io/v1beta1": "v1alpha1", "cluster.x-k8s.io/v1beta2": "v1alpha2"},
    **UPSTREAM,
}


@kind(version="v1alpha2", **KAMAJI)
class KamajiControlPlane(Object, frozen=True, kw_only=True):
    """A control plane hosted by Kamaji."""

    spec: KamajiControlPlaneSpec = field(default_factory=KamajiControlPlaneSpec)
    status: ControlPlaneStatus = field(default_factory=ControlPlaneStatus)


@kind(version="v1alpha1", storage=False, **KAMAJI)
class KamajiControlPlaneV1Alpha1(Object, frozen=True, kw_only=True):
    """A control plane hosted by Kamaji."""

    spec: KamajiControlPlaneSpec = field(default_factory=KamajiControlPlaneSpec)
    status: KamajiControlPlaneStatusV1Alpha1 = field(
        default_factory=KamajiControlPlaneStatusV1Alpha1
    )


class ControlPlaneMachineSpec(Value, frozen=True, kw_only=True):
    """The spec of each control plane machine."""

    infrastructure_ref: ContractRef = field(name="infrastructureRef")
    deletion: MachineDeletion = field(default_factory=MachineDeletion)


class ControlPlaneMachineTemplate(Value, frozen=True, kw_only=True):
    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: ControlPlaneMachineSpec


class ControlPlaneRollout(Value, frozen=True, kw_only=True):
    """When and how control plane machines are replaced."""

    after: datetime | None = None
    strategy: Mapping[str, Any] | None = None


class KubeadmControlPlaneSpec(Value, frozen=True, kw_only=True):
    """A control plane that runs on machines."""

    replicas: int | None = None
    version: str
    machine_template: ControlPlaneMachineTemplate = field(name="machineTemplate")
    kubeadm_config_spec: KubeadmConfigSpec = field(
        name="kubeadmConfigSpec", default_factory=KubeadmConfigSpec
    )
    rollout: ControlPlaneRollout = field(default_factory=ControlPlaneRollout)


KUBEADM: dict[str, Any] = {
    "group": CONTROL_PLANE,
    "plural": "kubeadmcontrolplanes",
    "name": "KubeadmControlPlane",
    "short": ("kcp",),
    "scale": SCALE,
    "columns": COLUMNS,
    "labels": {"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2"},
    **UPSTREAM,
}


@kind(version="v1beta2", **KUBEADM)
class KubeadmControlPlane(Object, frozen=True, kw_only=True):
    """A control plane on machines, set up by kubeadm."""

    spec: KubeadmControlPlaneSpec
    status: ControlPlaneStatus = field(default_factory=ControlPlaneStatus)


class KubeadmControlPlaneSpecV1Beta1(Value, frozen=True, kw_only=True):
    """A control plane that runs on machines, in v1beta1."""

    replicas: int | None = None
    version: str
    machine_template: Mapping[str, Any] = field(name="machineTemplate")
    kubeadm_config_spec: Mapping[str, Any] = field(name="kubeadmConfigSpec", default_factory=dict)


@kind(version="v1beta1", storage=False, **KUBEADM)
class KubeadmControlPlaneV1Beta1(Object, frozen=True, kw_only=True):
    """A control plane on machines, set up by kubeadm."""

    spec: KubeadmControlPlaneSpecV1Beta1
    status: Mapping[str, Any] = field(default_factory=dict)


_TABLE = ConversionTable(
    (
        FieldMove("status.initialized", "status.initialization.controlPlaneInitialized"),
        FieldMove("status.updatedReplicas", "status.upToDateReplicas"),
    )
)
CONVERSIONS: tuple[KindConversion, ...] = (
    KindConversion(
        group=CONTROL_PLANE,
        kind="KamajiControlPlane",
        hub="v1alpha2",
        spokes=(Spoke(version="v1alpha1", to_hub=_TABLE.to_hub, from_hub=_TABLE.from_hub),),
    ),
)
KINDS: tuple[type[Object], ...] = (
    KamajiControlPlane,
    KamajiControlPlaneV1Alpha1,
    KubeadmControlPlane,
    KubeadmControlPlaneV1Beta1,
)
