"""
TalosConfig and TalosConfigTemplate of Cluster API's Talos bootstrap provider, in v1alpha3.

Its release v0.6 serves the same fields. The embedded controller knows the types ``worker`` and
``none``; RFC 6902 patches (``configPatches``) are for the upstream provider only.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from moxwell.api.capi.bootstrap import AGE, BootstrapInitialization
from moxwell.api.capi.shared import BOOTSTRAP, UPSTREAM
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


KINDS: tuple[type[Object], ...] = (TalosConfig, TalosConfigTemplate)
