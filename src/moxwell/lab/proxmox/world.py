"""
World files: YAML that describes the initial state of all regions.

Nodes, bridges, storages with volumes, users and permissions, guests and templates. An error names
the file, line and field (see :mod:`moxwell.lab.proxmox.yaml_tree`). Omitted fields have the
defaults of ``state``.
"""

import hashlib
from pathlib import Path
from typing import Any

from moxwell.lab.proxmox.access.privileges import builtin_roles
from moxwell.lab.proxmox.access.realms import BUILTIN
from moxwell.lab.proxmox.state import (
    RegionPace,
    Row,
    SimAccess,
    SimAcl,
    SimGroup,
    SimHost,
    SimPool,
    SimRegion,
    SimToken,
    SimUser,
)
from moxwell.lab.proxmox.world_guests import read_guest
from moxwell.lab.proxmox.world_storage import read_storage
from moxwell.lab.proxmox.yaml_tree import InvalidFile, YamlTree

REPOIDS = {8: "2606ac850d46da29", 9: "14a22df35955d97d"}


def load_world(path: Path, now: float) -> dict[str, SimRegion]:
    """Read the regions of a world file; ``now`` is the boot time of their hosts."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidFile(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise InvalidFile(f"cannot read {path}: {error.strerror}") from error
    return read_world(text, str(path), now)


def read_world(text: str, source: str, now: float) -> dict[str, SimRegion]:
    tree = YamlTree.parse(text, source)
    regions: dict[str, SimRegion] = {}
    for one in tree.items("regions"):
        region = _region(one, now)
        if region.name in regions:
            raise one.get("name").error(f"region '{region.name}' is defined twice")
        regions[region.name] = region
    if not regions:
        raise tree.error("field 'regions' is missing or empty")
    tree.done()
    return regions


def _region(tree: YamlTree, now: float) -> SimRegion:
    version = tree.text("version", "8.4.21")
    parts = version.split(".")
    if len(parts) < 2 or parts[0] not in {"8", "9"}:
        raise tree.get("version").error(f"must be 8.x or 9.x, not '{version}'")
    region = SimRegion(tree.text("name"), version=version, release=".".join(parts[:2]))
    region.repoid = tree.text("repoid", REPOIDS[int(parts[0])])
    region.cluster = tree.text("cluster", "") or None
    region.config_version = tree.integer("config_version", 1)
    region.secret = hashlib.sha256(f"{region.name}:{tree.text('seed', '')}".encode()).hexdigest()
    region.pace = _pace(tree.find("pace"))
    for at, one in enumerate(tree.items("nodes"), 1):
        host = _host(one, at, now, bool(region.cluster))
        if host.name in region.hosts:
            raise one.get("name").error(f"node '{host.name}' is defined twice")
        region.hosts[host.name] = host
    if not region.hosts:
        raise tree.error("field 'nodes' is missing or empty")
    first = next(iter(region.hosts))
    region.api_node = tree.text("api_node", first)
    if region.api_node not in region.hosts:
        raise tree.get("api_node").error(f"node '{region.api_node}' does not exist")
    region.hosts[region.api_node].port = tree.integer("port", 0, least=0)
    _contents(tree, region, now)
    tree.done()
    return region


def _contents(tree: YamlTree, region: SimRegion, now: float) -> None:
    for one in tree.items("storages"):
        storage = read_storage(one, region, now)
        region.storages[storage.name] = storage
    region.access = _access(tree.find("access"), region.major)
    for one in tree.items("guests"):
        guest = read_guest(one, region, now)
        region.guests[guest.vmid] = guest
        region.changed.add(guest.vmid)
    for one in tree.items("pools"):
        region.pools[one.text("pool")] = _pool(one)
    options = tree.find("options")
    region.options = dict(options.value()) if options else {}
    files = tree.find("files")
    for name, entry in files.fields() if files else ():
        region.files[name] = _file(entry)


def _file(tree: YamlTree) -> dict[str, Any]:
    """A file on the hosts, or what a web server answers for a URL."""
    row: dict[str, Any] = {"size": tree.size("size", 0), "what": tree.text("what", "")}
    for name in ("virtual_size", "qcow2"):
        row |= {name: tree.size(name)} if tree.has(name) else {}
    for name in ("data", "fill", "phrase"):
        row |= {name: tree.text(name)} if tree.has(name) else {}
    row |= {"gzip": True} if tree.boolean("gzip", False) else {}
    row |= {"status": tree.integer("status")} if tree.has("status") else {}
    tree.done()
    return row


def _pool(tree: YamlTree) -> SimPool:
    pool = SimPool(tree.text("pool"), tree.text("comment", "") or None)
    pool.vms = [int(one.value()) for one in tree.items("vms")]
    pool.storages = [str(one.value()) for one in tree.items("storages")]
    tree.done()
    return pool


def _pace(tree: YamlTree | None) -> RegionPace:
    pace = RegionPace()
    if tree is None:
        return pace
    for name in RegionPace.__dataclass_fields__:
        if name.endswith("bandwidth"):
            setattr(pace, name, float(tree.size(name, int(getattr(pace, name)))))
        else:
            setattr(pace, name, tree.number(name, getattr(pace, name)))
    tree.done()
    return pace


def _host(tree: YamlTree, at: int, now: float, clustered: bool) -> SimHost:
    host = SimHost(tree.text("name"), tree.integer("nodeid", at if clustered else 0))
    host.address = tree.text("address", f"192.0.2.{at}/24")
    host.cpus = tree.integer("cpus", host.cpus, least=1)
    host.sockets = tree.integer("sockets", host.sockets, least=1)
    host.memory = tree.size("memory", host.memory)
    host.root = tree.size("root", host.root)
    host.cpu_model = tree.text("cpu_model", host.cpu_model)
    host.numa_nodes = tree.integer("numa_nodes", 1, least=1)
    host.kvm = tree.boolean("kvm", True)
    host.online = tree.boolean("online", True)
    host.port = tree.integer("port", 0, least=0)
    pages = tree.find("hugepages")
    host.hugepages = {k: int(v.value()) for k, v in pages.fields()} if pages else {}
    host.boot = now - tree.integer("uptime", 3600)
    for one in tree.items("pci"):
        host.pci[one.text("id")] = _pci_device(one)
    host.usb = [_usb_device(at, one) for at, one in enumerate(tree.items("usb"), 1)]
    for one in tree.items("bridges"):
        name = one.text("iface")
        host.bridges[name] = _bridge(one, host)
    if not tree.has("bridges"):
        host.bridges["vmbr0"] = _bridge_row(host.address, "eth0", 4)
    tree.done()
    return host


def _pci_device(tree: YamlTree) -> Row:
    tree.text("id")
    row: Row = {
        "vendor": f"0x{tree.text('vendor')}",
        "device": f"0x{tree.text('device')}",
        "class": f"0x{tree.text('class', '030000')}",
        "iommugroup": tree.integer("iommugroup", -1),
    }
    for name in ("vendor_name", "device_name"):
        row |= {name: tree.text(name)} if tree.has(name) else {}
    row |= {"mdev": 1} if tree.boolean("mdev", False) else {}
    tree.done()
    return row


def _usb_device(at: int, tree: YamlTree) -> Row:
    row: Row = {
        "busnum": 1,
        "devnum": at,
        "port": at,
        "level": 1,
        "class": 0,
        "speed": "480",
        "vendid": tree.text("vendid"),
        "prodid": tree.text("prodid"),
        "usbpath": tree.text("usbpath", str(at)),
    }
    for name in ("product", "manufacturer", "serial"):
        row |= {name: tree.text(name)} if tree.has(name) else {}
    tree.done()
    return row


def _bridge(tree: YamlTree, host: SimHost) -> Row:
    address = tree.text("address", "" if host.bridges else host.address)
    row = _bridge_row(address, tree.text("ports", "eth0"), 4 + len(host.bridges))
    row["type"] = tree.choice("type", ("bridge", "OVSBridge", "bond", "eth", "vlan"), "bridge")
    if tree.boolean("vlan_aware", False):
        row |= {"bridge_vlan_aware": 1, "bridge_vids": "2-4094"}
    tree.text("iface")
    tree.done()
    return row


def _bridge_row(address: str, ports: str, priority: int) -> Row:
    row: Row = {
        "type": "bridge",
        "method": "static" if address else "manual",
        "method6": "manual",
        "families": ["inet"],
        "bridge_ports": ports,
        "bridge_stp": "off",
        "bridge_fd": "0",
        "autostart": 1,
        "active": 1,
        "priority": priority,
    }
    if address:
        plain, _, mask = address.partition("/")
        row |= {"address": plain, "netmask": mask, "cidr": address}
    return row


def _access(tree: YamlTree | None, major: int) -> SimAccess:
    access = SimAccess(realms={name: dict(row) for name, row in BUILTIN.items()})
    access.users["root@pam"] = SimUser("root@pam")
    if tree is None:
        return access
    for one in tree.items("users"):
        user = SimUser(one.text("userid"), one.text("password", "") or None)
        user.comment = one.text("comment", "") or None
        access.users[user.userid] = user
        one.done()
    for one in tree.items("groups"):
        group = SimGroup(one.text("group"), one.text("comment", "") or None)
        group.users = [str(user.value()) for user in one.items("users")]
        access.groups[group.groupid] = group
        one.done()
    for one in tree.items("tokens"):
        _token(one, access)
    for one in tree.items("roles"):
        access.roles[one.text("role")] = [str(p.value()) for p in one.items("privs")]
        one.done()
    for one in tree.items("acl"):
        _acl(one, access, major)
    tree.done()
    return access


def _token(tree: YamlTree, access: SimAccess) -> None:
    userid, _, tokenid = tree.text("token").partition("!")
    if userid not in access.users or not tokenid:
        raise tree.get("token").error("must be USER@REALM!NAME of an existing user")
    token = SimToken(tokenid, tree.text("secret"), int(tree.boolean("privsep", True)))
    access.users[userid].tokens[tokenid] = token
    tree.done()


def _acl(tree: YamlTree, access: SimAccess, major: int) -> None:
    role = tree.text("role")
    if role not in access.roles and role not in builtin_roles(major):
        raise tree.get("role").error(f"role '{role}' does not exist")
    kinds = [kind for kind in ("user", "group", "token") if tree.has(kind)]
    if len(kinds) != 1:
        raise tree.error("one of the fields user, group, token is required")
    propagate = int(tree.boolean("propagate", True))
    access.acl.append(SimAcl(tree.text("path"), kinds[0], tree.text(kinds[0]), role, propagate))
    tree.done()
