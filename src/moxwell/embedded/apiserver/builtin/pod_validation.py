"""Validation of Pods and Pod templates, for the fields that users often get wrong."""

from typing import Any

from moxwell.api.quantity import Quantity
from moxwell.embedded.apiserver.builtin.field_errors import (
    Object,
    forbidden,
    invalid,
    required,
    unsupported,
)
from moxwell.embedded.apiserver.builtin.label_selectors import matches
from moxwell.embedded.apiserver.metadata import dns_label, dns_subdomain, label_causes
from moxwell.embedded.apiserver.status_errors import ErrorCause

_POLICIES = ("Always", "IfNotPresent", "Never")


def spec_causes(spec: Object, at: str, claims: frozenset[str] = frozenset()) -> list[ErrorCause]:
    """Validate a Pod spec; ``claims`` are volumes that come from volumeClaimTemplates."""
    found: list[ErrorCause] = []
    volumes = _volumes(spec.get("volumes") or [], f"{at}.volumes", found) | claims
    containers = spec.get("containers") or []
    if not containers:
        found.append(required(f"{at}.containers"))
    names: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            _container(container, f"{at}.{group}[{index}]", names, volumes, found)
    allowed = ("Always", "Never", "OnFailure")
    if spec.get("restartPolicy") not in allowed:
        found.append(unsupported(f"{at}.restartPolicy", spec.get("restartPolicy", ""), allowed))
    dns = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
    if spec.get("dnsPolicy") not in dns:
        found.append(unsupported(f"{at}.dnsPolicy", spec.get("dnsPolicy", ""), dns))
    if spec.get("nodeName"):
        found += [
            invalid(f"{at}.nodeName", spec["nodeName"], t) for t in dns_subdomain(spec["nodeName"])
        ]
    found += label_causes(spec.get("nodeSelector"), f"{at}.nodeSelector")
    return found


def _volumes(volumes: list[Object], at: str, found: list[ErrorCause]) -> set[str]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name", "")
        where = f"{at}[{index}].name"
        if not name:
            found.append(required(where))
        else:
            found += [invalid(where, name, text) for text in dns_label(name)]
        if name in names:
            found.append(ErrorCause("FieldValueDuplicate", f'Duplicate value: "{name}"', where))
        if len(volume) > 2:
            text = "may not specify more than 1 volume type"
            kind = sorted(k for k in volume if k != "name")[-1]
            found.append(forbidden(f"{at}[{index}].{kind}", text))
        names.add(name)
    return names


def _container(
    container: Object, at: str, names: set[str], volumes: set[str], found: list[ErrorCause]
) -> None:
    name = container.get("name", "")
    if not name:
        found.append(required(f"{at}.name"))
    else:
        found += [invalid(f"{at}.name", name, text) for text in dns_label(name)]
        if name in names:
            found.append(
                ErrorCause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{at}.name")
            )
        names.add(name)
    if not container.get("image"):
        found.append(required(f"{at}.image"))
    if container.get("imagePullPolicy") not in _POLICIES:
        policy = container.get("imagePullPolicy", "")
        found.append(unsupported(f"{at}.imagePullPolicy", policy, _POLICIES))
    for index, port in enumerate(container.get("ports") or ()):
        _port(port, f"{at}.ports[{index}]", found)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        if mount.get("name") not in volumes:
            text = f'Not found: "{mount.get("name", "")}"'
            found.append(ErrorCause("FieldValueNotFound", text, f"{at}.volumeMounts[{index}].name"))
    for index, env in enumerate(container.get("env") or ()):
        if not env.get("name"):
            found.append(required(f"{at}.env[{index}].name"))
    _resources(container.get("resources") or {}, f"{at}.resources", found)


def _port(port: Object, at: str, found: list[ErrorCause]) -> None:
    number = port.get("containerPort", 0)
    if not number:
        found.append(required(f"{at}.containerPort"))
    elif not 1 <= number <= 65535:
        text = "must be between 1 and 65535, inclusive"
        found.append(invalid(f"{at}.containerPort", number, text))
    if port.get("protocol") not in ("TCP", "UDP", "SCTP"):
        allowed = ("SCTP", "TCP", "UDP")
        found.append(unsupported(f"{at}.protocol", port.get("protocol", ""), allowed))


def _resources(resources: Object, at: str, found: list[ErrorCause]) -> None:
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and Quantity.parse(amount) > Quantity.parse(limits[name]):
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            found.append(invalid(f"{at}.requests", amount, text))


def template_causes(
    template: Object,
    selector: Object | None,
    at: str,
    kind: str,
    claims: frozenset[str] = frozenset(),
) -> list[ErrorCause]:
    """Validate a Pod template and that its labels match the selector."""
    found: list[ErrorCause] = []
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector is None or not matches(selector, labels):
        text = "`selector` does not match template `labels`"
        found.append(invalid(f"{at}.metadata.labels", labels, text))
    found += label_causes(labels, f"{at}.metadata.labels")
    spec = template.get("spec") or {}
    found += spec_causes(spec, f"{at}.spec", claims)
    if kind != "Job" and spec.get("restartPolicy") not in (None, "Always") and "containers" in spec:
        where = f"{at}.spec.restartPolicy"
        found.append(unsupported(where, spec["restartPolicy"], ("Always",)))
    return found


def check(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    """Validate a Pod."""
    if subresource == "status":
        return []
    found = spec_causes(new.get("spec") or {}, "spec")
    if old is not None and subresource == "" and not found:
        found += _frozen(new.get("spec") or {}, old.get("spec") or {})
    return found


def _frozen(new: Object, old: Object) -> list[ErrorCause]:
    """Validate an update: most of a Pod's spec is immutable."""
    before, after = _kept(old), _kept(new)
    if before == after and _only_added(old.get("tolerations"), new.get("tolerations")):
        return []
    text = (
        "pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only"
        " additions to"
        " existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1"
        " if it was"
        " previously negative)"
    )
    return [forbidden("spec", text)]


def _kept(spec: Object) -> Object:
    kept = {k: v for k, v in spec.items() if k not in ("activeDeadlineSeconds", "tolerations")}
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        kept["terminationGracePeriodSeconds"] = 1
    for group in ("containers", "initContainers"):
        if group in kept:
            kept[group] = [{k: v for k, v in c.items() if k != "image"} for c in kept[group]]
    return kept


def _only_added(old: Any, new: Any) -> bool:
    return all(item in (new or []) for item in old or [])
