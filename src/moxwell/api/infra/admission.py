"""
Validation of ProxmoxCluster, ProxmoxMachine and their templates for the admission webhook.

Pure functions from an object in the hub version, and its previous state on update, to error
messages. Rules that a CRD can express stand on the kinds; this module has those that compare
several fields or old and new state. Nothing is looked up in Proxmox: what depends on Proxmox
becomes a condition.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator

from msgspec import structs

from moxwell.api.infra.address_ranges import AddressRange, parse_address_ranges
from moxwell.api.infra.cluster import ProxmoxCluster, ProxmoxClusterSpec, ProxmoxClusterTemplate
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineTemplate
from moxwell.api.infra.network import IPConfig, NetworkSpec, PolicySpec, RouteSpec, VrfSpec
from moxwell.api.infra.template import Claim
from moxwell.api.kinds import Object
from moxwell.api.validation import violations
from moxwell.errors import Invalid

DRY_RUN = "topology.cluster.x-k8s.io/dry-run"
ISO_SLOT = "ide2"
_HOSTNAME = re.compile(r"^(?=.{1,253}$)[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[-a-zA-Z0-9]+)*$")
_KERNEL_PRIORITIES = (0, 32765, 32766)
_CHANGEABLE_IN_PLACE = frozenset({
    "num_sockets", "num_cores", "cpu_type", "cpu_limit", "cpu_units", "memory_mib", "balloon_mib",
    "tags", "description", "disks", "firewall_groups", "high_availability", "on_boot", "pool",
})  # fmt: skip
MIN_VMID, MAX_VMID = 100, 999_999_999  # of Proxmox
_SET_ONCE = frozenset({"provider_id", "virtual_machine_id", "region", "claim"})
_RESERVED_TAGS = ("mox-", "moxc-", "moxwell")  # as in pve.ownership
_MUTABLE = frozenset({"when_stopped", "changes", "shutdown_seconds", "checks"})


def validation_errors(
    obj: Object, old: Object | None = None, *, dry_run: bool = False
) -> tuple[str, ...]:
    """Return the reasons to reject the object; empty if it is valid."""
    errors = [str(v) for v in violations(obj, old)]
    match obj:
        case ProxmoxCluster():
            errors += _cluster(obj.spec)
        case ProxmoxClusterTemplate():
            errors += _cluster(obj.spec.template.spec)
            errors += _template_unchanged(obj, old, dry_run)
        case ProxmoxMachine():
            errors += _machine(obj.spec)
            if isinstance(old, ProxmoxMachine) and not obj.deleting:
                errors += _machine_changes(old.spec, obj.spec)
        case ProxmoxMachineTemplate():
            errors += _machine(obj.spec.template.spec)
            errors += _not_in_template(obj.spec.template.spec)
            errors += _template_unchanged(obj, old, dry_run)
    return tuple(dict.fromkeys(errors))


# clusters


def _cluster(spec: ProxmoxClusterSpec) -> Iterator[str]:
    yield from _ip_config("spec.ipv4Config", spec.ipv4_config, 4)
    yield from _ip_config("spec.ipv6Config", spec.ipv6_config, 6)
    for zone in spec.zone_config:
        yield from _ip_config(f"spec.zoneConfig[{zone.zone}].ipv4Config", zone.ipv4_config, 4)
        yield from _ip_config(f"spec.zoneConfig[{zone.zone}].ipv6Config", zone.ipv6_config, 6)
    yield from _duplicates("spec.zoneConfig", [z.zone for z in spec.zone_config])
    yield from _duplicates("spec.regions", [r.name for r in spec.regions])
    for server in spec.dns_servers:
        if not _ip_version(server):
            yield f"spec.dnsServers: {server!r} is not an IP address"
    yield from _endpoint(spec)


def _ip_config(path: str, config: IPConfig | None, version: int) -> Iterator[str]:
    if config is None:
        return
    try:
        ranges = parse_address_ranges(config.addresses)
    except Invalid as error:
        yield f"{path}.addresses: {error}"
        return
    if any(r.version != version for r in ranges):
        yield f"{path}.addresses: must contain only IPv{version} addresses"
    if version == 4 and config.prefix > 32:
        yield f"{path}.prefix: must be at most 32 for IPv4, not {config.prefix}"
    if config.gateway and _ip_version(config.gateway) != version:
        yield f"{path}.gateway: {config.gateway!r} is not an IPv{version} address"


def _endpoint(spec: ProxmoxClusterSpec) -> Iterator[str]:
    endpoint = spec.control_plane_endpoint
    if endpoint is None or not endpoint.host:
        return
    if not _ip_version(endpoint.host) and not _HOSTNAME.match(endpoint.host):
        yield (
            f"spec.controlPlaneEndpoint.host: {endpoint.host!r} is neither an IP address "
            "nor a host name"
        )
    if spec.external_managed_control_plane or not _ip_version(endpoint.host):
        return
    if any(endpoint.host in each for each in _all_ranges(spec)):
        yield (
            f"spec.controlPlaneEndpoint.host: {endpoint.host} is an address for machines; "
            "remove it from ipv4Config/ipv6Config, or a machine can get it"
        )


def _all_ranges(spec: ProxmoxClusterSpec) -> Iterator[AddressRange]:
    zones = spec.zone_config
    configs = [spec.ipv4_config, spec.ipv6_config]
    configs += [c for z in zones for c in (z.ipv4_config, z.ipv6_config)]
    for config in configs:
        try:
            yield from parse_address_ranges(config.addresses) if config else ()
        except Invalid:
            continue  # _ip_config reports it


def _ip_version(text: str) -> int:
    try:
        return ipaddress.ip_address(text).version
    except ValueError:
        return 0


# machines


def _machine(spec: ProxmoxMachineSpec) -> Iterator[str]:
    if spec.network is not None:
        yield from _network(spec.network)
    vmid = spec.virtual_machine_id
    if vmid is not None and not MIN_VMID <= vmid <= MAX_VMID:
        yield f"spec.virtualMachineID: {vmid} is not from {MIN_VMID} to {MAX_VMID}"
    reserved = [tag for tag in spec.tags if tag.lower().startswith(_RESERVED_TAGS)]
    if reserved:
        yield f"spec.tags: {', '.join(reserved)}: tags that begin with mox are set by Moxwell only"
    disks = spec.disks
    if disks is not None:
        slots = [d.disk for d in disks.extra]
        yield from _duplicates("spec.disks.extra", slots)
        if disks.boot_volume and disks.boot_volume.disk in slots:
            yield f"spec.disks.extra: {disks.boot_volume.disk} is already the boot volume"
        if ISO_SLOT in slots:
            yield f"spec.disks.extra: {ISO_SLOT} is reserved for the bootstrap ISO; use another"
    total = sum(node.memory_mib for node in spec.numa_nodes)
    if spec.numa_nodes and total != spec.memory_mib:
        yield f"spec.numaNodes: their memory is {total} MiB and must sum up to spec.memoryMiB"
    if spec.target and spec.allowed_nodes and spec.target not in spec.allowed_nodes:
        yield f"spec.target: {spec.target} is not in spec.allowedNodes"


def _network(network: NetworkSpec) -> Iterator[str]:
    names = [d.name for d in network.network_devices]
    yield from _duplicates("spec.network.networkDevices", names)
    for family in ("4", "6"):
        chosen = [d.name for d in network.network_devices if getattr(d, f"default_ipv{family}")]
        if len(chosen) > 1:
            yield (
                f"spec.network.networkDevices: {' and '.join(chosen)} both have defaultIPv{family};"
                " only one device can be the default"
            )
    for device in network.network_devices:
        path = f"spec.network.networkDevices[{device.name}]"
        yield from _routes(path, device.routes)
        yield from _policies(path, device.routing_policy, None)
    for vrf in network.vrfs:
        yield from _vrf(vrf, names)


def _vrf(vrf: VrfSpec, names: list[str]) -> Iterator[str]:
    path = f"spec.network.vrfs[{vrf.name}]"
    for name in vrf.interfaces:
        if name not in names:
            yield f"{path}.interfaces: device {name} does not exist"
    yield from _routes(path, vrf.routes)
    yield from _policies(path, vrf.routing_policy, vrf.table)


def _routes(path: str, routes: Iterable[RouteSpec]) -> Iterator[str]:
    for n, route in enumerate(routes):
        if not route.to:
            yield f"{path}.routes[{n}].to: must be a prefix or default"
        elif route.to == "default" and not route.via and route.is6 is None:
            yield f"{path}.routes[{n}]: a default route without via needs is6: true or false"


def _policies(path: str, policies: Iterable[PolicySpec], table: int | None) -> Iterator[str]:
    for n, policy in enumerate(policies):
        where = f"{path}.routingPolicy[{n}]"
        if policy.table is None and table is None:
            yield f"{where}.table: is required"
        elif table is not None and policy.table not in (None, table):
            yield f"{where}.table: must be the VRF's table {table}"
        if policy.priority in _KERNEL_PRIORITIES:
            yield f"{where}.priority: {policy.priority} is reserved for the kernel"


def _decided(claim: Claim | None) -> Claim | None:
    """The claim without what the controller records in it after the guest exists."""
    return claim and structs.replace(claim, applied=None, stale_clones=())


def _machine_changes(old: ProxmoxMachineSpec, new: ProxmoxMachineSpec) -> Iterator[str]:
    """
    Validate changes of a machine whose guest exists.

    Most fields are immutable; those that Proxmox can change on a guest require ``changes:
    InPlace``.
    """
    if not old.provider_id or old == new:
        return
    for field in structs.fields(ProxmoxMachineSpec):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after or field.name in _MUTABLE:
            continue
        if field.name in _SET_ONCE:
            if field.name == "claim" and _decided(before) == _decided(after):
                continue
            if before not in (None, ""):
                yield f"spec.{field.encode_name}: is immutable once set"
        elif field.name not in _CHANGEABLE_IN_PLACE:
            yield (
                f"spec.{field.encode_name}: cannot be changed after the guest is created; "
                "roll out machines from a new template instead"
            )
        elif new.changes != "InPlace":
            yield (
                f"spec.{field.encode_name}: set spec.changes: InPlace to change the guest in place,"
                " or roll out machines from a new template"
            )
    yield from _shrunk_disks(old, new)


def _shrunk_disks(old: ProxmoxMachineSpec, new: ProxmoxMachineSpec) -> Iterator[str]:
    before = old.disks.boot_volume.size_gb if old.disks and old.disks.boot_volume else 0
    after = new.disks.boot_volume.size_gb if new.disks and new.disks.boot_volume else before
    if after < before:
        yield f"spec.disks.bootVolume.sizeGb: a disk cannot shrink from {before} to {after}"
    old_disks = {d.disk: d for d in old.disks.extra} if old.disks else {}
    for disk in new.disks.extra if new.disks else ():
        previous = old_disks.get(disk.disk, disk)
        path = f"spec.disks.extra[{disk.disk}]"
        if disk.size_gb < previous.size_gb:
            change = f"from {previous.size_gb} to {disk.size_gb}"
            yield f"{path}.sizeGb: a disk cannot shrink {change}"
        if (disk.storage, disk.format) != (previous.storage, previous.format):
            yield f"{path}: storage and format of an existing disk are immutable; use another slot"


# templates


def _not_in_template(spec: ProxmoxMachineSpec) -> Iterator[str]:
    for name in ("provider_id", "virtual_machine_id", "claim"):
        if getattr(spec, name):
            wire = {f.name: f.encode_name for f in structs.fields(ProxmoxMachineSpec)}[name]
            yield f"spec.template.spec.{wire}: cannot be set in a template"


def _template_unchanged(obj: Object, old: Object | None, dry_run: bool) -> Iterator[str]:
    """Templates are immutable, except in a dry run of the ClusterClass controller."""
    if old is None or (dry_run and DRY_RUN in obj.metadata.annotations):
        return
    if getattr(obj, "spec", None) != getattr(old, "spec", None):
        yield (
            "spec: a template is immutable, because machines were created from it; "
            "create a new template and reference it"
        )


def _duplicates(path: str, names: list[str]) -> Iterator[str]:
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield f"{path}: duplicate {name}"
