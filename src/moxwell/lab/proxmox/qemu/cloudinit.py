"""
cloud-init: the documents that PVE generates from a VM configuration, and the cloud-init drive.

``SimGuest.special`` holds the values that the drive still has; ``regenerate`` writes
the drive and clears them. The ISO image is built when it is read.
"""

import hashlib
import io
import ipaddress
from urllib.parse import unquote

from pycdlib import PyCdlib

from moxwell.lab.proxmox.config_schema import devices, formats, vm
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall, RegionRuntime
from moxwell.lab.proxmox.state import Conf, Row, SimGuest
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore


def document_format(conf: Conf) -> str:
    if "citype" in conf:
        return str(conf["citype"])
    return "configdrive2" if str(conf.get("ostype", "")).startswith("w") else "nocloud"


def user_data(conf: Conf, vmid: int, *, masked: bool = False) -> str:
    host, fqdn = _names(conf, vmid)
    lines = ["#cloud-config", f"hostname: {host}", "manage_etc_hosts: true", f"fqdn: {fqdn}"]
    user = conf.get("ciuser")
    if user is not None:
        lines.append(f"user: {user}")
        lines += ["disable_root: False"] if user == "root" else []
    if "cipassword" in conf:
        lines.append(f"password: {files.HIDDEN if masked else conf['cipassword']}")
    if "sshkeys" in conf:
        keys = [k for k in unquote(str(conf["sshkeys"])).split("\n") if k.strip()]
        lines += ["ssh_authorized_keys:", *(f"  - {key}" for key in keys)]
    lines += ["chpasswd:", "  expire: False"]
    if user != "root":
        lines += ["users:", "  - default"]
    if conf.get("ciupgrade", 1):
        lines.append("package_upgrade: true")
    return "\n".join(lines) + "\n"


def _names(conf: Conf, vmid: int) -> tuple[str, str]:
    name = str(conf.get("name") or f"VM{vmid}")
    if "." in name:
        return name.partition(".")[0], name
    search = str(conf.get("searchdomain") or "").strip()
    return name, f"{name}.{search}" if search else name


def _dns(conf: Conf) -> tuple[list[str], list[str]]:
    search = str(conf.get("searchdomain") or "").split()
    return search, str(conf.get("nameserver") or "").split()


def _cards(conf: Conf) -> list[tuple[str, str, dict[str, str]]]:
    """(index, MAC, ip configuration) of the network devices with an ipconfig, sorted as strings."""
    cards = []
    for name, net in sorted(files.nets(conf)):
        number = name[3:]
        text = conf.get(f"ipconfig{number}")
        if text:
            found = devices.read(devices.IPCONFIG, text)
            cards.append((number, net.get("macaddr", "").lower(), found))
    return cards


def network_data(conf: Conf) -> str:
    if document_format(conf) != "nocloud":
        return _interfaces(conf)
    lines = ["version: 1", "config:"]
    for number, mac, ip in _cards(conf):
        lines += [
            "    - type: physical",
            f"      name: eth{number}",
            f"      mac_address: '{mac}'",
            "      subnets:",
            *(f"      {line}" for line in _subnets(ip)),
        ]
    search, servers = _dns(conf)
    lines.append("    - type: nameserver")
    lines += ["      address:", *(f"      - '{s}'" for s in servers)] if servers else []
    lines += ["      search:", *(f"      - '{s}'" for s in search)] if search else []
    return "\n".join(lines) + "\n"


def _subnets(ip: dict[str, str]) -> list[str]:
    lines: list[str] = []
    if ip.get("ip") == "dhcp":
        lines.append("- type: dhcp4")
    elif "ip" in ip:
        address, mask = _split(ip["ip"])
        lines += ["- type: static", f"  address: '{address}'", f"  netmask: '{mask}'"]
        lines += [f"  gateway: '{ip['gw']}'"] if "gw" in ip else []
    if ip.get("ip6") == "dhcp":
        lines.append("- type: dhcp6")
    elif ip.get("ip6") == "auto":
        lines.append("- type: ipv6_slaac")
    elif "ip6" in ip:
        lines += ["- type: static6", f"  address: '{ip['ip6']}'"]
        lines += [f"  gateway: '{ip['gw6']}'"] if "gw6" in ip else []
    return lines


def _split(cidr: str) -> tuple[str, str]:
    found = ipaddress.ip_interface(cidr)
    return str(found.ip), str(found.netmask)


def _interfaces(conf: Conf) -> str:
    """The /etc/network/interfaces document of a configdrive2 drive."""
    lines = ["auto lo", "iface lo inet loopback", ""]
    search, servers = _dns(conf)
    lines += [f"        dns_nameservers {' '.join(servers)}"] if servers else []
    lines += [f"        dns_search {' '.join(search)}"] if search else []
    for number, _, ip in _cards(conf):
        lines.append(f"auto eth{number}")
        for key, gate, family in (("ip", "gw", "inet"), ("ip6", "gw6", "inet6")):
            lines += _interface(f"iface eth{number} {family}", ip.get(key), ip.get(gate))
    return "\n".join(lines) + "\n"


def _interface(lead: str, address: str | None, gateway: str | None) -> list[str]:
    if address is None:
        return []
    if address in ("dhcp", "auto"):
        return [f"{lead} {address}"]
    host, slash, bits = address.partition("/")
    mask = bits if ":" in address or not slash else _split(address)[1]
    lines = [f"{lead} static", f"        address {host}", f"        netmask {mask}"]
    return lines + ([f"        gateway {gateway}"] if gateway else [])


def meta_data(conf: Conf, user: str, network: str) -> str:
    ident = hashlib.sha1((user + network).encode()).hexdigest()
    if document_format(conf) == "nocloud":
        return f"instance-id: {ident}\n"
    return (
        f'{{\n     "uuid": "{ident}",\n'
        '     "network_config": { "content_path": "/content/0000" }\n}\n'
    )


# ---------------------------------------------------------------------- drive


def documents(runtime: RegionRuntime, node: str, conf: Conf, vmid: int) -> dict[str, str]:
    """user, network, meta and vendor data; custom snippets override generated documents."""
    custom = devices.read(devices.CICUSTOM, conf.get("cicustom", ""))
    given = {key: _snippet(runtime, node, volid) for key, volid in custom.items()}
    user = given.get("user", user_data(conf, vmid))
    network = given.get("network", network_data(conf))
    meta = given.get("meta", meta_data(conf, user, network))
    return {"user": user, "network": network, "meta": meta, "vendor": given.get("vendor", "")}


def _snippet(runtime: RegionRuntime, node: str, volid: str) -> str:
    store = VolumeStore(runtime, node)
    if store.parse(volid).kind != "snippets":
        raise die(f"{volid} is not in the snippets directory")
    return (store.get(volid).data or b"").decode()


def regenerate(call: PveCall, guest: SimGuest) -> bool:
    """Write the drive again; returns whether there is one."""
    drive = files.find_cloudinit([guest.conf])
    for key in [k for k in guest.special if not k.startswith("unattached:")]:
        del guest.special[key]
    if drive is None:
        return False
    documents(call.runtime, call.node, guest.conf, guest.vmid)
    return True


def in_effect(guest: SimGuest) -> Conf:
    """The configuration that the drive currently has."""
    special = {k: v for k, v in guest.special.items() if not k.startswith("unattached:")}
    added = formats.split_list(str(special.pop("added", "")))
    return {k: v for k, v in guest.conf.items() if k not in added} | special


def image(runtime: RegionRuntime, guest: SimGuest) -> bytes:
    """The ISO image of the cloud-init drive."""
    conf = in_effect(guest)
    found = documents(runtime, guest.node, conf, guest.vmid)
    if document_format(conf) == "nocloud":
        names = {"user": "user-data", "network": "network-config", "meta": "meta-data"}
        return iso("cidata", {names.get(k, "vendor-data"): v.encode() for k, v in found.items()})
    paths = {
        "user": "openstack/latest/user_data",
        "network": "openstack/content/0000",
        "meta": "openstack/latest/meta_data.json",
        "vendor": "openstack/latest/vendor_data.json",
    }
    return iso("config-2", {paths[k]: v.encode() for k, v in found.items()})


def iso(label: str, contents: dict[str, bytes]) -> bytes:
    """Build an ISO 9660 image with Rock Ridge and Joliet names."""
    disc = PyCdlib()
    disc.new(interchange_level=4, joliet=3, rock_ridge="1.09", vol_ident=label)
    for folder in sorted({"/".join(p.split("/")[:n]) for p in contents for n in (1, 2)}):
        if folder and any(p.startswith(f"{folder}/") for p in contents):
            name = folder.rpartition("/")[2]
            disc.add_directory(f"/{folder}", rr_name=name, joliet_path=f"/{folder}")
    for path, data in contents.items():
        name = path.rpartition("/")[2]
        disc.add_fp(io.BytesIO(data), len(data), f"/{path}", rr_name=name, joliet_path=f"/{path}")
    out = io.BytesIO()
    disc.write_fp(out)
    disc.close()
    return out.getvalue()


# ---------------------------------------------------------------------- endpoints


def pending(call: PveCall) -> list[Row]:
    """GET cloudinit: current and pending values."""
    guest = call.get_guest(call.params["vmid"])
    special = {k: v for k, v in guest.special.items() if not k.startswith("unattached:")}
    added = formats.split_list(str(special.pop("added", "")))
    conf = dict(guest.conf)
    for part in (conf, special):
        if "cipassword" in part:
            part["cipassword"] = files.HIDDEN
    rows: list[Row] = [{"key": key, "pending": conf.get(key)} for key in added]
    for key in sorted(vm.CLOUDINIT):
        if not conf.get(key) or key in added:
            continue
        if special.get(key):
            rows.append({"key": key, "value": special[key], "pending": conf[key]})
        else:
            rows.append({"key": key, "value": conf[key]})
    return rows + [{"key": key, "delete": 1} for key in special if not conf.get(key)]


async def update(call: PveCall) -> None:
    """PUT cloudinit: regenerate the drive."""
    vmid = call.params["vmid"]
    async with call.hold("qemu", vmid):
        guest = call.get_guest(vmid)
        files.check_lock(guest)
        if files.find_cloudinit([guest.conf]) is not None:
            regenerate(call, guest)


def dump(call: PveCall) -> str:
    """GET cloudinit/dump: a document generated from the current configuration."""
    guest = call.get_guest(call.params["vmid"])
    conf, vmid = guest.conf, guest.vmid
    if call.params["type"] == "user":
        visible = call.has_privileges(f"/vms/{vmid}", "VM.Config.Cloudinit")
        return user_data(conf, vmid, masked=not visible)
    if call.params["type"] == "network":
        return network_data(conf)
    return meta_data(conf, user_data(conf, vmid), network_data(conf))
