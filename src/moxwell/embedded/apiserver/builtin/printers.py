"""Computed table cells of ``kubectl get`` for Pods, Nodes, Services and other built-in kinds."""

from collections.abc import Callable
from typing import Any

from moxwell.embedded.apiserver.scale import selector_text

Object = dict[str, Any]
NONE = "<none>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def at(obj: Any, *path: str) -> Any:
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def labels(found: Any) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted((found or {}).items())) or NONE


def pod_ready(pod: Object) -> str:
    states = at(pod, "status", "containerStatuses") or ()
    ready = sum(bool(s.get("ready") and at(s, "state", "running") is not None) for s in states)
    return f"{ready}/{len(at(pod, 'spec', 'containers') or ())}"


def pod_status(pod: Object) -> str:
    status = pod.get("status") or {}
    reason: str = status.get("reason") or status.get("phase") or ""
    running = False
    for state in reversed(status.get("containerStatuses") or ()):
        waiting, ended = at(state, "state", "waiting"), at(state, "state", "terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended and ended.get("reason"):
            reason = ended["reason"]
        elif ended:
            signal, code = ended.get("signal", 0), ended.get("exitCode", 0)
            reason = f"Signal:{signal}" if signal else f"ExitCode:{code}"
        elif state.get("ready") and at(state, "state", "running") is not None:
            running = True
    if reason == "Completed" and running:
        reason = "Running"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def restarts(pod: Object) -> str:
    return str(sum(s.get("restartCount", 0) for s in at(pod, "status", "containerStatuses") or ()))


def gates(pod: Object) -> str:
    wanted = at(pod, "spec", "readinessGates") or ()
    if not wanted:
        return NONE
    conditions = {c["type"]: c.get("status") for c in at(pod, "status", "conditions") or ()}
    held = sum(conditions.get(g.get("conditionType")) == "True" for g in wanted)
    return f"{held}/{len(wanted)}"


def node_status(node: Object) -> str:
    ready = next((c for c in at(node, "status", "conditions") or () if c["type"] == "Ready"), None)
    found = ["Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"]
    if at(node, "spec", "unschedulable"):
        found.append("SchedulingDisabled")
    return ",".join(found)


def node_roles(node: Object) -> str:
    prefix, found = "node-role.kubernetes.io/", []
    for key, value in (node["metadata"].get("labels") or {}).items():
        if key.startswith(prefix) and key != prefix:
            found.append(key.removeprefix(prefix))
        elif key == "kubernetes.io/role" and value:
            found.append(value)
    return ",".join(sorted(found)) or NONE


def node_address(kind: str) -> Any:
    def cell(node: Object) -> str:
        listed = at(node, "status", "addresses") or ()
        return next((a["address"] for a in listed if a.get("type") == kind), NONE)

    return cell


def or_none(*path: str) -> Any:
    return lambda obj: at(obj, *path) or NONE


def or_unknown(*path: str) -> Any:
    return lambda obj: at(obj, *path) or "<unknown>"


def modes(listed: Any) -> str:
    return ",".join(_MODES.get(m, m) for m in listed or ())


def unset(*path: str) -> Any:
    return lambda obj: at(obj, *path) or "<unset>"


def claim_of(volume: Object) -> str:
    ref = at(volume, "spec", "claimRef")
    return f"{ref.get('namespace', '')}/{ref.get('name', '')}" if ref else ""


def phase(obj: Object) -> str:
    return (
        "Terminating"
        if obj["metadata"].get("deletionTimestamp")
        else at(obj, "status", "phase") or ""
    )


def external(service: Object) -> str:
    spec = service.get("spec") or {}
    listed = list(spec.get("externalIPs") or ())
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or ""
    if spec.get("type") == "LoadBalancer":
        balanced = at(service, "status", "loadBalancer", "ingress") or ()
        listed = [i.get("ip") or i.get("hostname", "") for i in balanced] + listed
        return ",".join(listed) or "<pending>"
    return ",".join(listed) or NONE


def ports(service: Object) -> str:
    found = []
    for port in at(service, "spec", "ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        found.append(f"{port.get('port')}{node}/{port.get('protocol')}")
    return ",".join(found) or NONE


def containers(*path: str, field: str) -> Any:
    def cell(obj: Object) -> str:
        return ",".join(c.get(field, "") for c in at(obj, *path, "containers") or ())

    return cell


def share(have: tuple[str, ...], wanted: tuple[str, ...]) -> Any:
    return lambda obj: f"{at(obj, *have) or 0}/{at(obj, *wanted) or 0}"


def count(*path: str) -> Any:
    return lambda obj: at(obj, *path) or 0


def text(*path: str, otherwise: str = "") -> Any:
    def cell(obj: Object) -> str:
        found = at(obj, *path)
        return otherwise if found is None else str(found)

    return cell


def size(*path: str) -> Any:
    return lambda obj: len(at(obj, *path) or ())


def data(obj: Object) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def selector(*path: str) -> Any:
    return lambda obj: selector_text(at(obj, *path)) or NONE


def subjects(kind: str) -> Any:
    def cell(obj: Object) -> str:
        chosen = [s for s in obj.get("subjects") or () if s.get("kind") == kind]
        named = (
            f"{s['namespace']}/{s['name']}" if s.get("namespace") else s["name"] for s in chosen
        )
        return ", ".join(named)

    return cell


def role(obj: Object) -> str:
    ref = obj.get("roleRef") or {}
    return f"{ref.get('kind')}/{ref.get('name')}"


def event_object(event: Object) -> str:
    ref = event.get("involvedObject") or event.get("regarding") or {}
    return f"{ref.get('kind', '').lower()}/{ref.get('name', '')}"


def event_source(event: Object) -> str:
    source = event.get("source") or event.get("deprecatedSource") or {}
    name = (
        source.get("component")
        or event.get("reportingComponent")
        or event.get("reportingController")
        or ""
    )
    return f"{name}, {source['host']}" if source.get("host") else str(name)


def endpoints(obj: Object) -> str:
    found = []
    for subset in obj.get("subsets") or ():
        for address in subset.get("addresses") or ():
            listed = subset.get("ports") or ()
            found += [f"{address['ip']}:{p['port']}" for p in listed] or [address["ip"]]
    return _few(found)


def _few(found: list[str]) -> str:
    if len(found) > 3:
        return f"{','.join(found[:3])} + {len(found) - 3} more..."
    return ",".join(found) or NONE


def slice_ports(obj: Object) -> str:
    found = obj.get("ports")
    return "<unset>" if not found else _few([str(p.get("port", "*")) for p in found])


def slice_endpoints(obj: Object) -> str:
    listed = [a for e in obj.get("endpoints") or () for a in e.get("addresses") or ()]
    return "<unset>" if not listed else _few(listed)


def job_status(job: Object) -> str:
    held = {c["type"] for c in at(job, "status", "conditions") or () if c.get("status") == "True"}
    for kind in ("Complete", "Failed"):
        if kind in held:
            return kind
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return "Suspended" if "Suspended" in held else "Running"


def completions(job: Object) -> str:
    done, wanted = at(job, "status", "succeeded") or 0, at(job, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    many = at(job, "spec", "parallelism") or 0
    return f"{done}/1 of {many}" if many > 1 else f"{done}/1"


def available(path: str) -> Any:
    def cell(obj: Object) -> str:
        found = at(obj, "spec", path)
        return "N/A" if found is None else str(found)

    return cell


def target(autoscaler: Object) -> str:
    ref = at(autoscaler, "spec", "scaleTargetRef") or {}
    return f"{ref.get('kind')}/{ref.get('name')}"


def hosts(ingress: Object) -> str:
    listed = [r.get("host") or "*" for r in at(ingress, "spec", "rules") or ()]
    return ",".join(listed) or "*"


def addresses(ingress: Object) -> str:
    listed = at(ingress, "status", "loadBalancer", "ingress") or ()
    return ",".join(i.get("ip") or i.get("hostname", "") for i in listed)


def conditions(request: Object) -> str:
    listed = at(request, "status", "conditions") or ()
    held = [c["type"] for c in listed] or ["Pending"]
    return ",".join([*held, *(["Issued"] if at(request, "status", "certificate") else [])])


def quota(*, limits: bool) -> Callable[[Object], str]:
    """Format usage of a quota: ``cpu: 1/4, pods: 2/10``; limits have their own column."""

    def cell(obj: Object) -> str:
        hard, used = at(obj, "status", "hard") or {}, at(obj, "status", "used") or {}
        names = [n for n in sorted(hard) if n.startswith("limits.") == limits]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell
