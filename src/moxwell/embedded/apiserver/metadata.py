"""Object metadata: system fields of new objects, immutable fields, validation."""

import random
import re
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.status_errors import ErrorCause

Object = dict[str, Any]
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_is_label = re.compile(_LABEL).fullmatch
_is_label_1035 = re.compile(_LABEL_1035).fullmatch
_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_qualified = re.compile(_QUALIFIED).fullmatch

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-',"
    " and must start"
    " and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for"
    " validation is"
    f" '{_LABEL}')"
)
LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with"
    " an alphabetic"
    " character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex"
    " used for"
    f" validation is '{_LABEL_1035}')"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-'"
    " or '.', and"
    " must start and end with an alphanumeric character (e.g. 'example.com', regex used for"
    " validation is"
    f" '{_SUBDOMAIN}')"
)
QUALIFIED_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an"
    " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for"
    " validation is"
    f" '{_QUALIFIED}')"
)
VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or"
    " '.', and"
    " must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
    " '12345', regex"
    " used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LABELLED = frozenset(["Namespace"])
_LABELLED_1035 = frozenset(["Service"])
_PATHS = frozenset(["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Event"])


def timestamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def new_uid() -> str:
    return str(uuid.uuid4())


def generate_name(prefix: str, choose: Callable[[str], str] = random.choice) -> str:
    """Generate a name from ``generateName``."""
    return prefix[:58] + "".join(choose(_SUFFIX) for _ in range(5))


def invalid_value(value: Any, why: str, field: str) -> ErrorCause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return ErrorCause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)


def name_problems(name: str, kind: str) -> list[str]:
    """Validate an object's name by the rule of its kind."""
    if kind in _PATHS:
        found = [f"may not be '{name}'"] if name in (".", "..") else []
        return found + [f"may not contain '{c}'" for c in "/%" if c in name]
    if kind in _LABELLED:
        return ["must not contain dots"] if "." in name else dns_label(name)
    if kind in _LABELLED_1035:
        return ([] if len(name) <= 63 else ["must be no more than 63 bytes"]) + (
            [] if _is_label_1035(name) else [LABEL_1035_TEXT]
        )
    return dns_subdomain(name)


def dns_label(name: str) -> list[str]:
    found = [] if len(name) <= 63 else ["must be no more than 63 bytes"]
    return found if _is_label(name) else [*found, LABEL_TEXT]


def dns_subdomain(name: str) -> list[str]:
    found = [] if len(name) <= 253 else ["must be no more than 253 bytes"]
    return found if _is_subdomain(name) else [*found, SUBDOMAIN_TEXT]


def qualified_problems(key: str) -> list[str]:
    """Validate a label key, annotation key or finalizer."""
    prefix, slash, name = key.rpartition("/")
    found: list[str] = []
    if slash:
        if not prefix:
            found.append("prefix part must be non-empty")
        elif not _is_subdomain(prefix) or len(prefix) > 253:
            found += ["prefix part " + text for text in dns_subdomain(prefix)]
    if not name:
        return [*found, "name part must be non-empty", QUALIFIED_TEXT]
    if len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    return found if _is_qualified(name) else [*found, QUALIFIED_TEXT]


def value_problems(value: str) -> list[str]:
    found = [] if len(value) <= 63 else ["must be no more than 63 bytes"]
    return found if not value or _is_qualified(value) else [*found, VALUE_TEXT]


def label_causes(labels: dict[str, str] | None, field: str) -> list[ErrorCause]:
    found: list[ErrorCause] = []
    for key, value in (labels or {}).items():
        found += [invalid_value(key, text, field) for text in qualified_problems(key)]
        found += [invalid_value(value, text, field) for text in value_problems(value)]
    return found


VALIDATED = ("labels", "annotations", "ownerReferences", "finalizers")


def validate(obj: Object, old: Object | None, kind: str, *, custom: bool) -> list[ErrorCause]:
    """Validate an object's metadata; kube-apiserver validates twice on update."""
    meta = obj["metadata"]
    if old is None:
        return _name_causes(meta, kind) + _common_causes(meta, custom=custom)
    if all(meta.get(name) == old["metadata"].get(name) for name in VALIDATED):
        return []  # it was valid when it was stored
    labels = label_causes(meta.get("labels"), "metadata.labels")
    found = 2 * labels + _common_causes(meta, custom=True) + _new_finalizers(meta, old)
    return found + _common_causes(meta, custom=custom) + _new_finalizers(meta, old)


def _common_causes(meta: Object, *, custom: bool) -> list[ErrorCause]:
    found = label_causes(meta.get("labels"), "metadata.labels")
    for key in meta.get("annotations") or {}:
        problems = qualified_problems(key.lower())
        found += [invalid_value(key, text, "metadata.annotations") for text in problems]
    size = sum(len(k) + len(v) for k, v in (meta.get("annotations") or {}).items())
    if size > 256 * 1024:
        text = "Too long: may not be more than 262144 bytes"
        found.append(ErrorCause("FieldValueTooLong", text, "metadata.annotations"))
    found += _owner_causes(meta.get("ownerReferences") or [])
    return found + _finalizer_causes(meta, custom=custom)


def _name_causes(meta: Object, kind: str) -> list[ErrorCause]:
    name = meta.get("name", "")
    if not name:
        text = "Required value: name or generateName is required"
        return [ErrorCause("FieldValueRequired", text, "metadata.name")]
    return [invalid_value(name, text, "metadata.name") for text in name_problems(name, kind)]


def _owner_causes(owners: list[Object]) -> list[ErrorCause]:
    found: list[ErrorCause] = []
    words = {"apiVersion": "version must not be empty", "uid": "must not be empty"}
    for owner in owners:
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                text = words.get(key, "must not be empty")
                found.append(invalid_value("", text, f"metadata.ownerReferences.{key}"))
    controllers = [o for o in owners if o.get("controller")]
    if len(controllers) > 1:
        text = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0].get('kind')}/{controllers[0].get('name')} and "
            f"{controllers[1].get('kind')}/{controllers[1].get('name')}"
        )
        shown = encode(owners).decode()
        text = f"Invalid value: {shown}: {text}"
        found.append(ErrorCause("FieldValueInvalid", text, "metadata.ownerReferences"))
    return found


STANDARD_FINALIZERS = frozenset(["kubernetes", "orphan", "foregroundDeletion"])


def _finalizer_causes(meta: Object, *, custom: bool) -> list[ErrorCause]:
    found: list[ErrorCause] = []
    given = meta.get("finalizers") or []
    for name in given:
        found += [invalid_value(name, t, "metadata.finalizers") for t in qualified_problems(name)]
    for at, name in enumerate(given):
        if "/" not in name and name not in STANDARD_FINALIZERS and not custom:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(invalid_value(name, text, f"metadata.finalizers[{at}]"))
    return found


def _new_finalizers(meta: Object, old: Object) -> list[ErrorCause]:
    if not old["metadata"].get("deletionTimestamp"):
        return []
    before = old["metadata"].get("finalizers") or []
    added = [name for name in meta.get("finalizers") or [] if name not in before]
    if not added:
        return []
    text = (
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        f"[]string{{{', '.join(map(_quote, added))}}}"
    )
    return [ErrorCause("FieldValueForbidden", f"Forbidden: {text}", "metadata.finalizers")]


def finalizer_warnings(new: Object, old: Object | None) -> list[str]:
    """Warn of unqualified finalizers."""
    before = ((old or {}).get("metadata") or {}).get("finalizers") or []
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name including a'
        " path (/) to"
        " avoid accidental conflicts with other finalizer writers"
        for name in new["metadata"].get("finalizers") or []
        if "/" not in name and name not in STANDARD_FINALIZERS and name not in before
    ]


def _quote(text: str) -> str:
    return f'"{text}"'


SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


def set_creation_metadata(obj: Object, now: str) -> None:
    """Set the system fields of a new object."""
    meta = obj["metadata"]
    for name in (*SYSTEM, "resourceVersion"):
        meta.pop(name, None)
    meta["uid"], meta["creationTimestamp"] = new_uid(), now
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = generate_name(meta["generateName"])


def keep_system_fields(new: Object, old: Object) -> None:
    """Restore the system fields of an updated object."""
    meta, before = new["metadata"], old["metadata"]
    for name in (*SYSTEM, "generation", "name", "namespace", "generateName"):
        if name in before:
            meta[name] = before[name]
        else:
            meta.pop(name, None)


def immutable_causes(new: Object, old: Object) -> list[ErrorCause]:
    """Report changes of immutable metadata."""
    meta, before, found = new["metadata"], old["metadata"], []
    for name in ("name", "namespace", "uid", "creationTimestamp"):
        given = meta.get(name)
        if given and given != before.get(name):
            found.append(invalid_value(given, "field is immutable", f"metadata.{name}"))
    return found
