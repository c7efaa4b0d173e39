"""Container configurations: mount points and their volumes, networks, digests."""

import re

from moxwell.lab.proxmox.config_schema import ct
from moxwell.lab.proxmox.config_schema.drives import size_text
from moxwell.lab.proxmox.config_schema.property_strings import Values, write
from moxwell.lab.proxmox.errors import PveException, bad_params, die
from moxwell.lab.proxmox.parameter_validation import MISSING
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import identity
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, Row, SimGuest
from moxwell.lab.proxmox.volumes import names

NEW_VOLUME = re.compile(r"([^:\s]+):(\d+(?:\.\d+)?)")
PRIVILEGES = (
    "VM.Config.Disk",
    "VM.Config.CPU",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
)


def is_mount(key: str) -> bool:
    return key == "rootfs" or re.fullmatch(r"mp\d+", key) is not None


def mount(key: str, text: object) -> Values:
    return ct.read(ct.mount_form(key), text)


def is_volume(values: Values) -> bool:
    return not values.get("volume", "").startswith("/")


def config_response(guest: SimGuest, conf: Conf) -> Row:
    """The response of GET config; descriptions end in a newline."""
    row = files.config_response(guest, conf)
    if "description" in row:
        row["description"] = str(row["description"]).rstrip("\n") + "\n"
    return row


def pending_rows(guest: SimGuest) -> list[Row]:
    rows = files.pending_rows(guest)
    for row in rows:
        for part in ("value", "pending"):
            if row["key"] == "description" and part in row:
                row[part] = str(row[part]).rstrip("\n") + "\n"
    return rows


# ---------------------------------------------------------------------- volumes


def make_volume(call: PveCall, vmid: int, key: str, text: str) -> tuple[str, str | None]:
    """The mount point string with its volume, and the volume id if it is new."""
    values, store = mount(key, text), files.volume_store(call)
    wanted = NEW_VOLUME.fullmatch(values.get("volume", ""))
    if wanted is None:
        if is_volume(values):
            values["size"] = size_text(store.get(values["volume"]).size)
        return ct.write_mount(key, values), None
    storage = store.get_storage(wanted[1])
    size = int(float(wanted[2]) * (1 << 20)) << 10
    form = "subvol" if storage.type == "zfspool" or not size else "raw"
    if form == "subvol" and names.has_path(storage) and size:
        form = "raw"
    volid = store.alloc(wanted[1], vmid, form, size)
    store.get(volid).content = "rootdir"
    values["volume"], values["size"] = volid, size_text(size)
    return ct.write_mount(key, values), volid


def with_hwaddr(call: PveCall, text: str, *, fresh: bool = False) -> str:
    """A network device string with a MAC address, in normalized form."""
    values = ct.read(ct.NET, text)
    if fresh or "hwaddr" not in values:
        values["hwaddr"] = identity.new_mac(call)
    values["type"] = "veth"
    return write(ct.NET, values)


# ---------------------------------------------------------------------- checks


def check_digest(guest: SimGuest, given: str | None) -> None:
    """Check the digest that a request gives."""
    if given and given != files.digest(guest):
        raise die("detected modified configuration - file changed by other user? Try again.")


def check_present(guest: SimGuest, key: str) -> None:
    """PVE parses the mount point that a request names, also one that is not configured."""
    if key in guest.conf:
        return
    missing = ("mp", "volume") if key.startswith("mp") else ("volume",)
    raise PveException(500, "format error", dict.fromkeys(missing, MISSING))


def check_networks(call: PveCall, conf: Conf) -> None:
    """
    The bridges of a configuration, which PVE reads when it writes the configuration of LXC.

    The change itself stays.
    """
    vnets = call.region.sdn.running.get("vnets", {})
    for key in sorted(k for k in conf if re.fullmatch(r"net\d+", k)):
        values = ct.read(ct.NET, conf[key])
        bridge = values.get("bridge")
        if bridge is None or bridge in call.host.bridges or bridge in vnets:
            continue
        if call.major >= 9 or "mtu" in values:
            raise die(f"bridge '{bridge}' does not exist")


def check_mount(call: PveCall, values: Values) -> None:
    """Check the storage of a new mount point."""
    if not is_volume(values):
        if not call.is_root:
            raise die("Only root can pass arbitrary filesystem paths.")
        return
    name = values["volume"].partition(":")[0]
    storage = files.volume_store(call).get_enabled(name)
    if "rootdir" not in storage.content:
        raise bad_params(storage=f"storage '{name}' does not support container directories")
    call.check(f"/storage/{name}", "Datastore.AllocateSpace")
