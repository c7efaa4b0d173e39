"""Validation of PersistentVolumes, claims, StorageClasses, attachments and CSI drivers."""

from collections.abc import Callable, Mapping, Sequence

from moxwell.api.quantity import Quantity
from moxwell.embedded.apiserver.builtin.field_errors import (
    Object,
    forbidden,
    immutable,
    invalid,
    required,
    unsupported,
)
from moxwell.embedded.apiserver.status_errors import ErrorCause

_PLAIN = (
    "capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName",
    "mountOptions", "volumeMode", "nodeAffinity", "volumeAttributesClassName",
)  # fmt: skip


SINGLE_POD = "ReadWriteOncePod"
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", SINGLE_POD)


def _claim(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    if subresource == "status":
        return []
    spec, found = new.get("spec") or {}, []
    if not spec.get("accessModes"):
        found.append(required("spec.accessModes", "at least 1 access mode is required"))
    found += _access_modes(spec.get("accessModes") or ())
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        found.append(required("spec.resources[storage]"))
    if old is not None and not found:
        found += _claim_update(
            spec, old.get("spec") or {}, (old.get("status") or {}).get("phase", "")
        )
    return found


def _access_modes(modes: Sequence[str]) -> list[ErrorCause]:
    field = "spec.accessModes"
    found = [unsupported(field, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if SINGLE_POD in modes and set(modes) != {SINGLE_POD}:
        text = f"may not use {SINGLE_POD} with other access modes"
        found.append(forbidden(field, text))
    return found


def _claim_update(new: Object, old: Object, phase: str) -> list[ErrorCause]:
    skip = ("resources", "volumeName", "volumeAttributesClassName")
    a, b = ({k: v for k, v in s.items() if k not in skip} for s in (new, old))
    if "storageClassName" not in b and a.get("storageClassName"):
        b["storageClassName"] = a["storageClassName"]  # a default class can be set later
    if a != b or (old.get("volumeName") and new.get("volumeName") != old["volumeName"]):
        text = (
            "spec is immutable after creation except resources.requests and"
            " volumeAttributesClassName for"
            " bound claims"
        )
        return [forbidden("spec", text)]
    size, before = (Quantity.parse(s["resources"]["requests"]["storage"]) for s in (new, old))
    if size < before:
        text = "field can not be less than status.capacity"
        return [forbidden("spec.resources.requests.storage", text)]
    if size > before and phase != "Bound":
        text = (
            "spec is immutable after creation except resources.requests and"
            " volumeAttributesClassName for"
            " bound claims"
        )
        return [forbidden("spec", text)]
    return []


def _source(spec: Object) -> Object:
    return {k: v for k, v in spec.items() if k not in _PLAIN}


def _volume(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    if subresource == "status":
        return []
    spec, found = new.get("spec") or {}, []
    if not spec.get("accessModes"):
        found.append(required("spec.accessModes"))
    if not spec.get("capacity"):
        found.append(required("spec.capacity"))
    if not _source(spec):
        found.append(required("spec", "must specify a volume type"))
    if old is not None and _source(spec) != _source(old.get("spec") or {}):
        text = "spec.persistentvolumesource is immutable after creation"
        found.append(forbidden("spec.persistentvolumesource", text))
    return found


def _class(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    found = [] if new.get("provisioner") else [required("provisioner")]
    if old is None:
        return found
    if new.get("parameters") != old.get("parameters"):
        found += immutable_value("parameters", new.get("parameters"))
    if new.get("provisioner") != old.get("provisioner"):
        found.append(forbidden("provisioner", "updates to provisioner are forbidden."))
    for field in ("reclaimPolicy", "volumeBindingMode"):
        found += immutable(field, new.get(field), old.get(field))
    return found


def immutable_value(field: str, value: object) -> list[ErrorCause]:
    return [invalid(field, value, "field is immutable")]


def _attachment(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    spec, found = new.get("spec") or {}, []
    for field in ("attacher", "nodeName"):
        if not spec.get(field):
            found.append(required(f"spec.{field}"))
    if old is not None and spec != old.get("spec"):
        found.append(invalid("spec", spec, "field is immutable"))
    return found


def _driver(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    if old is None:
        return []
    a, b = new.get("spec") or {}, old.get("spec") or {}
    return immutable("spec.attachRequired", a.get("attachRequired"), b.get("attachRequired"))


CHECKS: Mapping[str, Callable[[Object, Object | None, str], list[ErrorCause]]] = {
    "PersistentVolumeClaim": _claim,
    "PersistentVolume": _volume,
    "StorageClass": _class,
    "VolumeAttachment": _attachment,
    "CSIDriver": _driver,
}
