"""
Conversion of the infrastructure kinds between v1alpha1, v1alpha2, v1beta1 and the hub v1beta2.

The conversion webhook and the embedded API server call ``CONVERSIONS``.
:mod:`moxwell.api.conversion` makes the conversions lossless.
"""

from collections.abc import Callable
from dataclasses import dataclass

from moxwell.api import json_merge
from moxwell.api.conversion import KindConversion, Spoke
from moxwell.api.infra import cluster, convert_v1alpha1, machine, v1alpha1, v1alpha2, v1beta1
from moxwell.api.infra.convert_v1alpha1 import Json
from moxwell.api.infra.machine import GROUP, HUB
from moxwell.api.kinds import Object
from moxwell.errors import Invalid

VERSIONS = ("v1alpha1", "v1alpha2", "v1beta1", HUB)
KINDS: tuple[type[Object], ...] = (
    *cluster.KINDS,
    *machine.KINDS,
    *v1alpha1.KINDS,
    *v1alpha2.KINDS,
    *v1beta1.KINDS,
)
Part = Callable[[Json], Json]


def _copy(part: Json) -> Json:
    return dict(part)


@dataclass(frozen=True, slots=True)
class _VersionConversion:
    """Conversion functions for spec and status of one kind in one version."""

    spec_up: Part = _copy
    spec_down: Part = _copy
    status_up: Part = _copy
    status_down: Part = _copy
    template: bool = False

    def to_hub(self, obj: Json) -> Json:
        return self._convert(obj, self.spec_up, self.status_up)

    def from_hub(self, obj: Json) -> Json:
        return self._convert(obj, self.spec_down, self.status_down)

    def _convert(self, obj: Json, spec: Part, status: Part) -> Json:
        out = {k: v for k, v in obj.items() if k not in ("spec", "status")}
        old_spec = obj.get("spec") or {}
        out["spec"] = _in_template(old_spec, spec) if self.template else spec(old_spec)
        if obj.get("status"):
            out["status"] = status(obj["status"])
        return out


def _in_template(spec: Json, part: Part) -> Json:
    inner = spec.get("template")
    if not isinstance(inner, dict) or inner.get("spec") is None:
        return dict(spec)
    return {**spec, "template": {**inner, "spec": part(inner["spec"])}}


def _full_up(spec: Json) -> Json:
    return {**spec, "full": spec.get("full", True)}


def _uuid_up(spec: Json) -> Json:
    return {**spec, "providerIDFormat": spec.get("providerIDFormat", "UUID")}


def _uuid_down(spec: Json) -> Json:
    return {k: v for k, v in spec.items() if k != "providerIDFormat" or v != "UUID"}


def _drop(*names: str) -> Part:
    return lambda part: {k: v for k, v in part.items() if k not in names}


def _templated_cluster_up(spec: Json) -> Json:
    return _uuid_up(_drop("cloneSpec")(spec))


_ALIASES = (("nodeName", "target"), ("template", "templateName"), ("cores", "numCores"))


def _short_up(spec: Json) -> Json:
    """Replace the short names of v1beta1; memory is rounded up to a multiple of 8 MiB."""
    out = _drop("nodeName", "template", "cores", "memory", "diskSize")(spec)
    for short, long in _ALIASES:
        if spec.get(short) is not None:
            out[long] = spec[short]
    if (memory := spec.get("memory")) is not None:
        out["memoryMiB"] = -(-int(memory) // 8) * 8
    if (size := spec.get("diskSize")) is not None:
        disks = dict(out.get("disks") or {})
        out["disks"] = {**disks, "bootVolume": {**disks.get("bootVolume", {}), "sizeGb": size}}
    return out


def _short_down(spec: Json) -> Json:
    out = _drop("target", "templateName", "numCores", "memoryMiB")(spec)
    for short, long in (*_ALIASES, ("memory", "memoryMiB")):
        if spec.get(long) is not None:
            out[short] = spec[long]
    disks = spec.get("disks") or {}
    boot = disks.get("bootVolume") or {}
    if boot.get("sizeGb") is not None and not boot.get("disk") and list(disks) == ["bootVolume"]:
        del out["disks"]
        out["diskSize"] = boot["sizeGb"]
    return out


_V1ALPHA1 = convert_v1alpha1
_CLUSTER_V1ALPHA1 = (_V1ALPHA1.cluster_spec_up, _V1ALPHA1.cluster_spec_down)
_MACHINE_V1ALPHA1 = (_V1ALPHA1.machine_spec_up, _V1ALPHA1.machine_spec_down)
_drop_capmox_fields = _drop("taskRef", "retryAfter", "nodeLocations")
_BY_VERSION: dict[tuple[str, str], _VersionConversion] = {
    ("v1alpha1", "ProxmoxCluster"): _VersionConversion(
        *_CLUSTER_V1ALPHA1, _V1ALPHA1.cluster_status_up, _V1ALPHA1.cluster_status_down
    ),
    ("v1alpha1", "ProxmoxClusterTemplate"): _VersionConversion(*_CLUSTER_V1ALPHA1, template=True),
    ("v1alpha1", "ProxmoxMachine"): _VersionConversion(
        *_MACHINE_V1ALPHA1, _V1ALPHA1.machine_status_up, _V1ALPHA1.machine_status_down
    ),
    ("v1alpha1", "ProxmoxMachineTemplate"): _VersionConversion(
        *_MACHINE_V1ALPHA1,
        _V1ALPHA1.template_status_up,
        _V1ALPHA1.template_status_down,
        template=True,
    ),
    ("v1alpha2", "ProxmoxCluster"): _VersionConversion(
        _uuid_up, _uuid_down, _drop_capmox_fields, _copy
    ),
    ("v1alpha2", "ProxmoxClusterTemplate"): _VersionConversion(
        _templated_cluster_up, _uuid_down, template=True
    ),
    ("v1alpha2", "ProxmoxMachine"): _VersionConversion(_full_up, _copy, _drop_capmox_fields, _copy),
    ("v1alpha2", "ProxmoxMachineTemplate"): _VersionConversion(_full_up, _copy, template=True),
    ("v1beta1", "ProxmoxCluster"): _VersionConversion(),
    ("v1beta1", "ProxmoxClusterTemplate"): _VersionConversion(),
    ("v1beta1", "ProxmoxMachine"): _VersionConversion(_short_up, _short_down),
    ("v1beta1", "ProxmoxMachineTemplate"): _VersionConversion(
        _short_up, _short_down, template=True
    ),
}


def _without_empty(obj: Json) -> Json:
    """Drop empty values, so that absent and empty compare as equal."""
    return {k: v for k, v in obj.items() if v}


def _conversion(kind: str) -> KindConversion:
    spokes = [
        Spoke(
            version=version,
            to_hub=conversion.to_hub,
            from_hub=conversion.from_hub,
            canonical=_without_empty,
        )
        for (version, name), conversion in _BY_VERSION.items()
        if name == kind
    ]
    return KindConversion(
        group=GROUP, kind=kind, hub=HUB, spokes=tuple(spokes), canonical=_without_empty
    )


CONVERSIONS: tuple[KindConversion, ...] = tuple(
    _conversion(cls.resource.kind) for cls in (*cluster.KINDS, *machine.KINDS)
)


def convert(obj: Json, version: str) -> Json:
    """Convert an object to another version; ``version`` is without the group."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    for conversion in CONVERSIONS:
        if (group, obj.get("kind")) == (conversion.group, conversion.kind):
            return conversion.convert(json_merge.without_nulls(obj), version)
    raise Invalid(f"{obj.get('apiVersion')} {obj.get('kind')} is not a kind of the group {GROUP}")
