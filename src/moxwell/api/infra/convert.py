"""
Every version of our kinds into every other, through the hub.

In flows an object as JSON, out flows the same object in the version asked for, and nothing is lost
on the way (:mod:`moxwell.api.conversion`). ``FAMILIES`` is what a conversion webhook and the
embedded API call.
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


def _same(part: Json) -> Json:
    return dict(part)


@dataclass(frozen=True, slots=True)
class _Form:
    """How the parts of one kind go up and down between one version and the hub."""

    spec_up: Part = _same
    spec_down: Part = _same
    status_up: Part = _same
    status_down: Part = _same
    template: bool = False

    def up(self, obj: Json) -> Json:
        return self._convert(obj, self.spec_up, self.status_up)

    def down(self, obj: Json) -> Json:
        return self._convert(obj, self.spec_down, self.status_down)

    def _convert(self, obj: Json, spec: Part, status: Part) -> Json:
        out = {k: v for k, v in obj.items() if k not in ("spec", "status")}
        said = obj.get("spec") or {}
        out["spec"] = _in_template(said, spec) if self.template else spec(said)
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


def _mould_up(spec: Json) -> Json:
    return _uuid_up(_drop("cloneSpec")(spec))


_ALIASES = (("nodeName", "target"), ("template", "templateName"), ("cores", "numCores"))


def _short_up(spec: Json) -> Json:
    """The short words; memory is rounded up to the 8 MiB Proxmox counts in."""
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


_OLD = convert_v1alpha1
_CLUSTER_OLD = (_OLD.cluster_spec_up, _OLD.cluster_spec_down)
_MACHINE_OLD = (_OLD.machine_spec_up, _OLD.machine_spec_down)
_CAPMOX = _drop("taskRef", "retryAfter", "nodeLocations")
_FORMS: dict[tuple[str, str], _Form] = {
    ("v1alpha1", "ProxmoxCluster"): _Form(
        *_CLUSTER_OLD, _OLD.cluster_status_up, _OLD.cluster_status_down
    ),
    ("v1alpha1", "ProxmoxClusterTemplate"): _Form(*_CLUSTER_OLD, template=True),
    ("v1alpha1", "ProxmoxMachine"): _Form(
        *_MACHINE_OLD, _OLD.machine_status_up, _OLD.machine_status_down
    ),
    ("v1alpha1", "ProxmoxMachineTemplate"): _Form(
        *_MACHINE_OLD, _OLD.template_status_up, _OLD.template_status_down, template=True
    ),
    ("v1alpha2", "ProxmoxCluster"): _Form(_uuid_up, _uuid_down, _CAPMOX, _same),
    ("v1alpha2", "ProxmoxClusterTemplate"): _Form(_mould_up, _uuid_down, template=True),
    ("v1alpha2", "ProxmoxMachine"): _Form(_full_up, _same, _CAPMOX, _same),
    ("v1alpha2", "ProxmoxMachineTemplate"): _Form(_full_up, _same, template=True),
    ("v1beta1", "ProxmoxCluster"): _Form(),
    ("v1beta1", "ProxmoxClusterTemplate"): _Form(),
    ("v1beta1", "ProxmoxMachine"): _Form(_short_up, _short_down),
    ("v1beta1", "ProxmoxMachineTemplate"): _Form(_short_up, _short_down, template=True),
}


def _spoken(obj: Json) -> Json:
    """Nothing said and an empty saying are the same."""
    return {k: v for k, v in obj.items() if v}


def _family(kind: str) -> KindConversion:
    spokes = [
        Spoke(version=version, up=form.up, down=form.down, canon=_spoken)
        for (version, named), form in _FORMS.items()
        if named == kind
    ]
    return KindConversion(group=GROUP, kind=kind, hub=HUB, spokes=tuple(spokes), canon=_spoken)


CONVERSIONS: tuple[KindConversion, ...] = tuple(
    _family(cls.resource.kind) for cls in (*cluster.KINDS, *machine.KINDS)
)


def convert(obj: Json, version: str) -> Json:
    """The object in another version; ``version`` without the group."""
    group = str(obj.get("apiVersion", "")).rpartition("/")[0]
    for family in CONVERSIONS:
        if (group, obj.get("kind")) == (family.group, family.kind):
            return family.convert(json_merge.without_nulls(obj), version)
    raise Invalid(f"{obj.get('apiVersion')} {obj.get('kind')} is not a kind of {GROUP}")
