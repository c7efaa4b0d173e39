"""The scale subresource: converts between objects and ``autoscaling/v1`` Scale."""

from typing import Any

from moxwell.embedded.apiserver import jsonpath
from moxwell.embedded.apiserver.resources import ServedResource

Object = dict[str, Any]


def _first(path: str, obj: Object) -> Any:
    found = jsonpath.compile(path)(obj) if path else []
    return found[0] if found else None


def selector_text(selector: Any) -> str:
    """Format a LabelSelector."""
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    if "matchLabels" not in selector and "matchExpressions" not in selector:
        return ",".join(f"{k}={v}" for k, v in sorted(selector.items()) if isinstance(v, str))
    parts = [f"{k}={v}" for k, v in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        values = ",".join(sorted(term.get("values") or ()))
        match term.get("operator"):
            case "In":
                parts.append(f"{term['key']} in ({values})")
            case "NotIn":
                parts.append(f"{term['key']} notin ({values})")
            case "Exists":
                parts.append(term["key"])
            case "DoesNotExist":
                parts.append(f"!{term['key']}")
    return ",".join(parts)


class ScaleConverter:
    """Reads and sets the replicas of an object."""

    def to_scale(self, resource: ServedResource, obj: Object) -> Object:
        meta, paths = obj["metadata"], resource.scale
        if paths is None:
            wanted = (obj.get("spec") or {}).get("replicas")
            have = (obj.get("status") or {}).get("replicas")
            selector = selector_text((obj.get("spec") or {}).get("selector"))
        else:
            wanted, have = _first(paths.spec, obj), _first(paths.status, obj)
            selector = selector_text(_first(paths.selector, obj)) if paths.selector else ""
        keep = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        status: Object = {"replicas": have or 0}
        if selector:
            status["selector"] = selector
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {k: meta[k] for k in keep if k in meta},
            "spec": {"replicas": wanted} if wanted else {},
            "status": status,
        }

    def set_replicas(self, resource: ServedResource, obj: Object, replicas: int) -> Object:
        path = resource.scale.spec if resource.scale is not None else ".spec.replicas"
        parts = [part for part in path.split(".") if part]
        at = obj
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = replicas
        return obj
