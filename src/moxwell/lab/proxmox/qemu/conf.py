"""
VM configuration files: reading, writing, locks, digest, pending changes, boot order.

Every change of a configuration goes through ``write``, which removes unused entries of volumes that
are in use again and notifies pvestatd. Pending values of a running VM are in ``SimGuest.pending``,
pending deletions in ``SimGuest.deletes``.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from moxwell.lab.proxmox.config_schema import devices, formats
from moxwell.lab.proxmox.config_schema.drives import DRIVES, UNUSED, Drive, find_drive, is_drive
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall, RegionRuntime
from moxwell.lab.proxmox.state import Conf, Row, SimGuest, Value
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore

MISMATCH = "checksum mismatch (file change by other user?)"
HIDDEN = "**********"
_RANK = {slot: rank for rank, slot in enumerate(DRIVES)}


def volume_store(call: PveCall) -> VolumeStore:
    return VolumeStore(call.runtime, call.node)


def get_local_guest(call: PveCall, vmid: int, kind: str = "qemu") -> SimGuest:
    """The guest, or PVE's error if it is not on this node."""
    guest = call.find_guest(vmid, kind)
    if guest is None:
        raise die(f"unable to find configuration file for VM {vmid} on node '{call.node}'")
    return guest


def check_lock(guest: SimGuest) -> None:
    if guest.lock:
        label = "VM" if guest.kind == "qemu" else "CT"
        raise die(f"{label} is locked ({guest.lock})")


def check_protection(guest: SimGuest, error_prefix: str) -> None:
    if guest.conf.get("protection"):
        raise die(f"{error_prefix} - protection mode enabled")


def check_digest(guest: SimGuest, given: str | None) -> None:
    if given and given != digest(guest):
        raise die(MISMATCH)


def digest(guest: SimGuest) -> str:
    """SHA-1 of the configuration."""
    snapshots = {
        name: [snap.conf, snap.parent, snap.snaptime, snap.description, snap.state, snap.vmstate]
        for name, snap in guest.snapshots.items()
    }
    special = {k: v for k, v in guest.special.items() if not k.startswith("unattached:")}
    parts = [guest.conf, guest.pending, guest.deletes, snapshots, guest.parent, special]
    return hashlib.sha1(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def write(runtime: RegionRuntime, guest: SimGuest) -> None:
    """Normalize and write a changed configuration."""
    used = {volid for part in (guest.conf, guest.pending) for _, volid in named_volumes(part)}
    for name in [n for n in guest.conf if n.startswith("unused")]:
        if str(guest.conf[name]) in used:
            del guest.conf[name]
    if guest.conf.get("description") == "":
        del guest.conf["description"]
    runtime.mark_changed(guest.vmid)


# ---------------------------------------------------------------------- volumes


def drives(conf: Conf) -> Iterator[Drive]:
    """The drives of a configuration, by bus."""
    for slot in sorted((key for key in conf if key in _RANK), key=_RANK.__getitem__):
        drive = find_drive(slot, conf[slot])
        if drive is not None:
            yield drive


def named_volumes(conf: Conf) -> Iterator[tuple[str, str]]:
    """(key, volume id) of every drive of a VM or mount point of a container."""
    for key, value in conf.items():
        if is_drive(key) or key == "rootfs" or (key.startswith("mp") and key[2:].isdigit()):
            volid = str(value).partition(",")[0].removeprefix("volume=").removeprefix("file=")
            yield key, volid


def unused(conf: Conf) -> Iterator[Drive]:
    for slot in sorted((k for k in conf if k.startswith("unused")), key=UNUSED.index):
        yield Drive(slot, str(conf[slot]))


def find_cloudinit(confs: Iterable[Conf], skip: str | None = None) -> Drive | None:
    """The cloud-init drive in these configurations, except in slot ``skip``."""
    for conf in confs:
        for drive in drives(conf):
            if drive.is_cloudinit and drive.slot != skip:
                return drive
    return None


def is_owner(store: VolumeStore, vmid: int, volid: str) -> bool:
    """Whether the volume name contains the VMID of this guest."""
    return not volid.startswith("/") and ":" in volid and store.owner(volid) == vmid


def add_unused(conf: Conf, volid: str) -> None:
    """Add a detached volume as ``unusedN`` with the lowest free index."""
    if any(str(conf.get(name)) == volid for name in conf if name.startswith("unused")):
        return
    conf[next(name for name in UNUSED if name not in conf)] = volid


def register_unused(store: VolumeStore, guest: SimGuest, drive: Drive) -> None:
    """Add the volume of a removed drive as unused, if the guest owns it."""
    if drive.is_cloudinit:
        if store.find(drive.file) is not None:
            store.free(drive.file)
        for key in [k for k in guest.special if not k.startswith("unattached:")]:
            del guest.special[key]
    elif not drive.is_cdrom_media and drive.storage and is_owner(store, guest.vmid, drive.file):
        add_unused(guest.conf, drive.file)


def in_use(guest: SimGuest, key: str, volid: str) -> bool:
    """Whether another key or a snapshot references the volume."""
    confs: list[Conf] = [{k: v for k, v in guest.conf.items() if k != key}, guest.pending]
    confs += [snap.conf for snap in guest.snapshots.values()]
    named = any(found == volid for conf in confs for _, found in named_volumes(conf))
    return named or any(snap.vmstate == volid for snap in guest.snapshots.values())


# ---------------------------------------------------------------------- boot order


def boot_order(conf: Conf) -> list[str]:
    """The devices of ``boot: order=...``; empty for the legacy format."""
    return formats.split_list(devices.read(devices.BOOT, conf.get("boot", "")).get("order", ""))


def boot_text(names: list[str]) -> str:
    """The ``boot`` option for these devices."""
    return "order=" + ";".join(names) if names else " "


def boot_drives(conf: Conf) -> list[str]:
    """The boot disks."""
    values = devices.read(devices.BOOT, conf.get("boot", ""))
    if "boot" not in conf or "legacy" in values:
        return [str(conf["bootdisk"])] if conf.get("bootdisk") else []
    return [name for name in boot_order(conf) if is_drive(name)]


def default_boot(conf: Conf) -> str:
    """The default boot order: first disk, first CD-ROM drive, first network device."""
    found = [d for d in drives(conf) if d.slot not in ("efidisk0", "tpmstate0")]
    order = [d.slot for d in found if not d.is_cdrom_media][:1]
    order += [d.slot for d in found if d.is_cdrom_media][:1]
    order += sorted((k for k in conf if _is_net(k)), key=lambda k: int(k[3:]))[:1]
    return boot_text(order)


def _is_net(key: str) -> bool:
    return key.startswith("net") and key[3:].isdigit()


def nets(conf: Conf) -> list[tuple[str, dict[str, str]]]:
    """(name, values) of the network devices."""
    found = sorted((key for key in conf if _is_net(key)), key=lambda key: int(key[3:]))
    return [(key, devices.read(devices.NET, conf[key])) for key in found]


# ---------------------------------------------------------------------- pending


def cleanup_pending(guest: SimGuest) -> None:
    """Remove pending changes that have no effect."""
    for name in [n for n, v in guest.pending.items() if guest.conf.get(n) == v]:
        del guest.pending[name]
    for name in [n for n in guest.deletes if n not in guest.conf]:
        del guest.deletes[name]


def is_pending(guest: SimGuest) -> bool:
    return bool(guest.pending or guest.deletes)


def merged(guest: SimGuest) -> Conf:
    """The configuration with its pending changes; a 0 that is pending deletion remains."""
    conf = {k: v for k, v in guest.conf.items() if k not in guest.deletes or v in (0, "0")}
    return conf | guest.pending


def config_response(guest: SimGuest, conf: Conf) -> Row:
    """A configuration as returned by GET config."""
    row: Row = dict(conf)
    if guest.parent is not None:
        row["parent"] = guest.parent
    if row.get("cipassword"):
        row["cipassword"] = HIDDEN
    row["digest"] = digest(guest)
    return row


def pending_rows(guest: SimGuest) -> list[Row]:
    """The response of GET pending."""
    rows = [_pending_row(guest, key, value) for key, value in guest.conf.items()]
    rows.append({"key": "digest", "value": digest(guest)})
    if guest.parent is not None:
        rows.append({"key": "parent", "value": guest.parent})
    for key, value in guest.pending.items():
        if key not in guest.conf:
            rows.append({"key": key, "pending": _masked(key, value)})
    return rows


def _pending_row(guest: SimGuest, key: str, value: Value) -> Row:
    row: Row = {"key": key, "value": _masked(key, value)}
    if key in guest.pending:
        row["pending"] = _masked(key, guest.pending[key])
    elif key in guest.deletes:
        row["delete"] = 2 if guest.deletes[key] else 1
    return row


def _masked(key: str, value: Value) -> Value:
    return HIDDEN if key == "cipassword" else value


# ---------------------------------------------------------------------- shared lock


@dataclass(slots=True)
class _SharedLock:
    ready: asyncio.Future[bool]
    stack: AsyncExitStack
    count: int = 1


async def _join_lock(call: PveCall, vmid: int, seconds: float) -> _SharedLock:
    """Join the shared lock; the first caller acquires the lock file for all."""
    shares: dict[int, _SharedLock] = call.runtime.module_data.setdefault("shared_locks", {})
    entry = shares.get(vmid)
    if entry is not None:
        entry.count += 1
        if not await entry.ready:
            raise die(f"can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
        return entry
    entry = shares[vmid] = _SharedLock(asyncio.get_running_loop().create_future(), AsyncExitStack())
    granted = False
    try:
        await entry.stack.enter_async_context(call.hold("qemu", vmid, seconds))
        granted = True
    finally:
        if not granted:
            del shares[vmid]
        entry.ready.set_result(granted)
    return entry


@asynccontextmanager
async def shared_lock(call: PveCall, vmid: int, seconds: float) -> AsyncIterator[None]:
    """Hold a shared lock on a guest's configuration."""
    entry = await _join_lock(call, vmid, seconds)
    try:
        yield
    finally:
        entry.count -= 1
        if not entry.count:
            del call.runtime.module_data["shared_locks"][vmid]
            await entry.stack.aclose()
