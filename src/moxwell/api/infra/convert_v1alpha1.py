"""
Conversion of CAPMOX ``v1alpha1`` objects to and from the hub, as functions on JSON objects.

The default device is ``net0``. In v1alpha1 a pool on the default device replaces the cluster's
pool; in the hub pools are additional, so the default pool of that IP family is disabled. The family
of a hub's pool is unknown, so the first pool is taken as IPv4; :mod:`moxwell.api.conversion`
preserves what that loses.
"""

from typing import Any

Json = dict[str, Any]
_FAMILIES = (("ipv4PoolRef", "defaultIPv4"), ("ipv6PoolRef", "defaultIPv6"))
_DEVICE = (
    "bridge", "model", "mtu", "linkMtu", "vlan", "queues", "dnsServers", "routes", "routingPolicy",
)  # fmt: skip
_MACHINE = (
    "sourceNode", "templateID", "templateSelector", "description", "format", "full", "pool",
    "snapName", "storage", "target", "providerID", "virtualMachineID", "numSockets", "numCores",
    "memoryMiB", "disks", "vmIDRange", "checks", "metadataSettings", "allowedNodes", "tags",
)  # fmt: skip
_CLUSTER = (
    "controlPlaneEndpoint", "externalManagedControlPlane", "allowedNodes", "schedulerHints",
    "ipv4Config", "ipv6Config", "dnsServers", "credentialsRef",
)  # fmt: skip
_STATUS = ("addresses", "vmStatus", "bootstrapDataProvided", "proxmoxNode", "failureDomain")


def machine_spec_up(spec: Json) -> Json:
    out = _pick(spec, _MACHINE)
    out.setdefault("full", True)
    if (network := spec.get("network")) is not None:
        out["network"] = _network_up(network)
    return out


def machine_spec_down(spec: Json) -> Json:
    out = _pick(spec, _MACHINE)
    if (network := spec.get("network")) is not None:
        out["network"] = _network_down(network)
    return out


def _network_up(network: Json) -> Json:
    out = _pick(network, ("zone", "vrfs"))
    devices = []
    if (default := network.get("default")) is not None:
        devices.append(_device_up({**default, "name": "net0"}))
    devices += [_device_up(device) for device in network.get("additionalDevices") or ()]
    if devices:
        out["networkDevices"] = devices
    return out


def _device_up(device: Json) -> Json:
    out: Json = {"name": device.get("name", "net0"), **_pick(device, _DEVICE)}
    pools = []
    for pool, default in _FAMILIES:
        if pool in device:
            pools.append(device[pool])
            if out["name"] == "net0":
                out[default] = False
    if pools:
        out["ipPoolRef"] = pools
    return out


def _network_down(network: Json) -> Json:
    out = _pick(network, ("zone", "vrfs"))
    devices = network.get("networkDevices") or []
    first = [d for d in devices if d.get("name", "net0") == "net0"]
    more = [d for d in devices if d.get("name", "net0") != "net0"]
    if first:
        out["default"] = _device_down(first[0])
    if more:
        out["additionalDevices"] = [{"name": d["name"], **_device_down(d)} for d in more]
    return out


def _device_down(device: Json) -> Json:
    out = _pick(device, _DEVICE)
    pools = device.get("ipPoolRef") or []
    for (name, _), pool in zip(_FAMILIES, pools, strict=False):
        out[name] = pool
    return out


def cluster_spec_up(spec: Json) -> Json:
    return {**_pick(spec, _CLUSTER), "providerIDFormat": "UUID"}


def cluster_spec_down(spec: Json) -> Json:
    return _pick(spec, _CLUSTER)


def machine_status_up(status: Json) -> Json:
    out = {**_pick(status, _STATUS), **_ready_up(status)}
    if addresses := status.get("ipAddresses"):
        out["ipAddresses"] = [
            {"net": net, **{family: [a] for family, a in sorted(by_family.items()) if a}}
            for net, by_family in sorted(addresses.items())
        ]
    return out


def machine_status_down(status: Json) -> Json:
    out = {**_pick(status, _STATUS), **_ready_down(status)}
    if addresses := status.get("ipAddresses"):
        out["ipAddresses"] = {
            entry["net"]: {f: entry[f][0] for f in ("ipv4", "ipv6") if entry.get(f)}
            for entry in addresses
        }
    return out


def cluster_status_up(status: Json) -> Json:
    out = _ready_up(status)
    if domains := status.get("failureDomains"):
        out["failureDomains"] = [{"name": n, **d} for n, d in sorted(domains.items())]
    if pools := status.get("inClusterIpPoolRef"):
        out["inClusterIPPoolRef"] = pools
    return out


def cluster_status_down(status: Json) -> Json:
    out = _ready_down(status)
    if domains := status.get("failureDomains"):
        out["failureDomains"] = {
            d["name"]: {k: v for k, v in d.items() if k != "name"} for d in domains
        }
    if pools := status.get("inClusterIPPoolRef"):
        out["inClusterIpPoolRef"] = pools
    return out


def template_status_up(status: Json) -> Json:
    return dict(status)


def template_status_down(status: Json) -> Json:
    return _pick(status, ("capacity",))


def _ready_up(status: Json) -> Json:
    out: Json = {}
    if (ready := status.get("ready")) is not None:
        out["initialization"] = {"provisioned": ready}
    if conditions := status.get("conditions"):
        out["conditions"] = [_condition_up(c) for c in conditions]
    return out


def _ready_down(status: Json) -> Json:
    out: Json = {}
    ready = (status.get("initialization") or {}).get("provisioned")
    if ready is not None:
        out["ready"] = ready
    if conditions := status.get("conditions"):
        out["conditions"] = [_condition_down(c) for c in conditions]
    return out


def _condition_up(condition: Json) -> Json:
    """Convert a condition; a metav1.Condition requires a reason, which v1beta1 omits when True."""
    out = _pick(condition, ("type", "status", "lastTransitionTime"))
    return out | {
        "reason": condition.get("reason") or condition["type"],
        "message": condition.get("message", ""),
    }


def _condition_down(condition: Json) -> Json:
    out = _pick(condition, ("type", "status", "lastTransitionTime", "message"))
    if not out.get("message"):
        out.pop("message", None)
    if condition.get("reason") != condition["type"]:
        out["reason"] = condition.get("reason", "")
    if condition.get("status") == "False":
        out["severity"] = "Info"
    return out


def _pick(source: Json, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: source[name] for name in names if source.get(name) is not None}
