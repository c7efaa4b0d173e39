"""
Guests and templates of a world file.

``config`` is the guest configuration. Volumes that its drives name are created with the drive's
``size`` unless the storage lists them.
"""

import re
from uuid import UUID, uuid5

from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.config_schema import ct, vm
from moxwell.lab.proxmox.state import Conf, SimGuest, SimRegion, SimVolume, Value
from moxwell.lab.proxmox.yaml_tree import YamlTree

_DRIVE = re.compile(r"^(ide|sata|scsi|virtio|efidisk|tpmstate|unused|mp)\d+$|^rootfs$")
_SPACE = UUID("6d6f7877-656c-4000-8000-000000000000")


def read_guest(tree: YamlTree, region: SimRegion, now: float) -> SimGuest:
    vmid = tree.integer("vmid", least=100)
    if vmid in region.guests:
        raise tree.get("vmid").error(f"guest {vmid} is defined twice")
    node = tree.text("node", region.api_node)
    if node not in region.hosts:
        raise tree.get("node").error(f"node '{node}' does not exist")
    guest = SimGuest(vmid, tree.choice("type", ("qemu", "lxc"), "qemu"), node)
    guest.incarnation = region.next_number()
    guest.conf = _conf(tree, guest, now, region.major)
    for key, value in guest.conf.items():
        if _DRIVE.match(key):
            _drive(tree, region, guest, str(value), now)
    guest.running = tree.boolean("running", False)
    guest.cpu_load = tree.number("cpu_load", guest.cpu_load)
    guest.memory_load = tree.number("memory_load", guest.memory_load)
    if guest.running:
        guest.started, guest.pid, guest.live = now, region.next_number(), dict(guest.conf)
    tree.done()
    return guest


def _as_served(key: str, value: Value, guest: SimGuest, major: int) -> Value:
    """PVE serves numbers only for options that are integers or booleans: ``agent: 1`` is text."""
    options = vm.options(major) if guest.kind == "qemu" else ct.options(major)
    kind = options[key].type if key in options else "string"
    if kind in ("integer", "boolean") and not isinstance(value, str):
        return int(value)
    if kind in ("integer", "boolean") and str(value).lstrip("-").isdigit():
        return int(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _conf(tree: YamlTree, guest: SimGuest, now: float, major: int) -> Conf:
    conf: Conf = {}
    config = tree.find("config")
    for key, entry in config.fields() if config is not None else ():
        value = entry.value()
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, str | int | float):
            raise entry.error("must be a string or a number")
        conf[key] = _as_served(key, value, guest, major)
    name = tree.text("name", "")
    if name:
        conf["name" if guest.kind == "qemu" else "hostname"] = name
    if tree.boolean("template", False):
        conf["template"] = 1
    if guest.kind == "qemu":
        conf.setdefault("smbios1", f"uuid={uuid5(_SPACE, f'smbios:{guest.vmid}')}")
        conf.setdefault("vmgenid", str(uuid5(_SPACE, f"gen:{guest.vmid}")))
        conf.setdefault("meta", f"creation-qemu=9.2.0,ctime={int(now)}")
    return conf


def _drive(tree: YamlTree, region: SimRegion, guest: SimGuest, text: str, now: float) -> None:
    volid = text.split(",")[0].removeprefix("file=").removeprefix("volume=")
    prefix, colon, name = volid.partition(":")
    if not colon or ("media=cdrom" in text and "cloudinit" not in name):
        return
    storage = region.storages.get(prefix)
    if storage is None:
        raise tree.error(f"guest {guest.vmid} uses storage '{prefix}', which does not exist")
    volumes = storage.volumes_on(guest.node)
    size = pvestatd.size_bytes(pvestatd.option(text, "size")) or 4 << 20
    ending = name.rpartition(".")[2] if "." in name else "raw"
    kind = "subvol" if name.startswith("subvol") else ending
    content = "images" if guest.kind == "qemu" else "rootdir"
    volumes.setdefault(
        name,
        SimVolume(
            name,
            kind,
            content,
            size,
            used=size,
            vmid=guest.vmid,
            ctime=int(now),
            content_id=f"{region.name}/{prefix}/{name}",
        ),
    )
