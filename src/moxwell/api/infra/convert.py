"""
Every version of our kinds into every other, through the hub.

In flows an object as JSON, out flows the same object in the version asked for, and nothing is lost
on the way (:mod:`.carry`). These are what a conversion webhook and the embedded API call; they
know no sockets and no state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.api.infra import cluster, from_v1alpha1, machine, v1alpha1, v1alpha2, v1beta1
from moxwell.api.infra.carry import Json, from_hub, to_hub
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
        if obj.get("spec") is not None:
            out["spec"] = _in_template(obj["spec"], spec) if self.template else spec(obj["spec"])
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


_OLD = from_v1alpha1
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
    ("v1alpha2", "ProxmoxClusterTemplate"): _Form(_uuid_up, _uuid_down, template=True),
    ("v1alpha2", "ProxmoxMachine"): _Form(_full_up, _same, _CAPMOX, _same),
    ("v1alpha2", "ProxmoxMachineTemplate"): _Form(_full_up, _same, template=True),
    ("v1beta1", "ProxmoxCluster"): _Form(),
    ("v1beta1", "ProxmoxClusterTemplate"): _Form(),
    ("v1beta1", "ProxmoxMachine"): _Form(_short_up, _short_down),
    ("v1beta1", "ProxmoxMachineTemplate"): _Form(_short_up, _short_down, template=True),
}


def convert(obj: Json, version: str) -> Json:
    """The object in another version; ``version`` without the group."""
    group, _, now = str(obj.get("apiVersion", "")).rpartition("/")
    kind = str(obj.get("kind", ""))
    if group != GROUP or now not in VERSIONS or version not in VERSIONS:
        raise Invalid(f"cannot convert {obj.get('apiVersion')} {kind} to {GROUP}/{version}")
    if now == version:
        return obj
    hub = _named(_as_hub(_without_nulls(obj), kind, now), HUB)
    if version == HUB:
        return hub
    form = _form(version, kind)
    return _named(from_hub(hub, form.up, form.down, version=version, hub=HUB), version)


def _as_hub(obj: Json, kind: str, version: str) -> Json:
    if version == HUB:
        return obj
    form = _form(version, kind)
    return to_hub(obj, form.up, form.down, version=version, hub=HUB)


def _form(version: str, kind: str) -> _Form:
    found = _FORMS.get((version, kind))
    if found is None:
        raise Invalid(f"{GROUP}/{version} has no kind {kind}")
    return found


def _named(obj: Json, version: str) -> Json:
    return {**obj, "apiVersion": f"{GROUP}/{version}"}


def _without_nulls(tree: Any) -> Any:
    """Null means absent, as an apiserver reads it."""
    if isinstance(tree, dict):
        return {k: _without_nulls(v) for k, v in tree.items() if v is not None}
    return [_without_nulls(v) for v in tree] if isinstance(tree, list) else tree
