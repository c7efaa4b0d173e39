"""
The kinds of Cluster API's Talos providers, in v1alpha3: TalosConfig, its template, and
TalosControlPlane.

Their releases v0.6 and v0.5 serve the same fields. The embedded controllers know the types
``worker``, ``controlplane`` and ``none``; RFC 6902 patches (``configPatches``) are for the upstream
providers only.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from moxwell.api.capi.bootstrap import AGE, BootstrapInitialization
from moxwell.api.capi.controlplane import COLUMNS
from moxwell.api.capi.machinesets import SCALE
from moxwell.api.capi.shared import (
    BOOTSTRAP,
    CONTROL_PLANE,
    UPSTREAM,
    ContractRef,
    ObjectReference,
)
from moxwell.api.conditions import LegacyCondition
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import TemplateMeta, Value

CONTRACT = {"cluster.x-k8s.io/v1beta1": "v1alpha3"}


class TalosHostname(Value, frozen=True, kw_only=True):
    """Where the hostname comes from; ours is that of the machine in both cases."""

    source: str = ""


class TalosConfigSpec(Value, frozen=True, kw_only=True):
    """The desired machine configuration of a Talos node."""

    generate_type: Literal["worker", "join", "controlplane", "init", "none"] = field(
        name="generateType"
    )
    talos_version: str = field(name="talosVersion", default="")
    data: str = ""  # the whole configuration, with generateType none
    config_patches: tuple[Mapping[str, Any], ...] = field(name="configPatches", default=())
    strategic_patches: tuple[str, ...] = field(name="strategicPatches", default=())
    hostname: TalosHostname = field(default_factory=TalosHostname)


class TalosConfigStatus(Value, frozen=True, kw_only=True):
    """The observed state, with the name of the bootstrap data Secret."""

    ready: bool = False
    initialization: BootstrapInitialization = field(default_factory=BootstrapInitialization)
    data_secret_name: str = field(name="dataSecretName", default="")
    failure_message: str = field(name="failureMessage", default="")
    conditions: tuple[LegacyCondition, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=BOOTSTRAP,
    version="v1alpha3",
    plural="talosconfigs",
    labels=CONTRACT,
    columns=(AGE,),
    **UPSTREAM,
)
class TalosConfig(Object, frozen=True, kw_only=True):
    """The Talos machine configuration of one machine."""

    spec: TalosConfigSpec
    status: TalosConfigStatus = field(default_factory=TalosConfigStatus)


class TalosConfigTemplateResource(Value, frozen=True, kw_only=True):
    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: TalosConfigSpec


class TalosConfigTemplateSpec(Value, frozen=True, kw_only=True):
    template: TalosConfigTemplateResource


@kind(
    group=BOOTSTRAP,
    version="v1alpha3",
    plural="talosconfigtemplates",
    labels=CONTRACT,
    columns=(AGE,),
    **{**UPSTREAM, "status": False},
)
class TalosConfigTemplate(Object, frozen=True, kw_only=True):
    """The Talos machine configuration that machines of a MachineDeployment are created with."""

    spec: TalosConfigTemplateSpec


class TalosControlPlaneConfig(Value, frozen=True, kw_only=True):
    """The machine configuration of the control planes."""

    controlplane: TalosConfigSpec


class TalosControlPlaneSpec(Value, frozen=True, kw_only=True):
    """A control plane that runs on Talos machines."""

    replicas: int | None = None
    version: str
    infrastructure_template: ObjectReference = field(name="infrastructureTemplate")
    control_plane_config: TalosControlPlaneConfig = field(name="controlPlaneConfig")
    rollout_strategy: Mapping[str, Any] | None = field(name="rolloutStrategy", default=None)

    @property
    def template_ref(self) -> ContractRef:
        """The machine template, without version."""
        ref = self.infrastructure_template
        group = ref.api_version.partition("/")[0]
        return ContractRef(api_group=group, kind=ref.kind, name=ref.name)


class TalosControlPlaneStatus(Value, frozen=True, kw_only=True):
    """The observed state; ``bootstrapped``: one of the machines is asked to begin etcd."""

    selector: str = ""
    replicas: int = 0
    ready_replicas: int = field(name="readyReplicas", default=0)
    unavailable_replicas: int = field(name="unavailableReplicas", default=0)
    initialized: bool = False
    ready: bool = False
    bootstrapped: bool = False
    conditions: tuple[LegacyCondition, ...] = ()
    observed_generation: int = field(name="observedGeneration", default=0)


@kind(
    group=CONTROL_PLANE,
    version="v1alpha3",
    plural="taloscontrolplanes",
    labels=CONTRACT,
    scale=SCALE,
    columns=COLUMNS,
    **UPSTREAM,
)
class TalosControlPlane(Object, frozen=True, kw_only=True):
    """A control plane on Talos machines."""

    spec: TalosControlPlaneSpec
    status: TalosControlPlaneStatus = field(default_factory=TalosControlPlaneStatus)


KINDS: tuple[type[Object], ...] = (TalosConfig, TalosConfigTemplate, TalosControlPlane)
