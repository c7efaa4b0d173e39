"""
pvestatd: the guest status that the cluster broadcasts, up to ten seconds old.

There is no periodic task. A change adds the VMID to ``SimRegion.changed``; the next request runs
the update that would have happened meanwhile. A region without changes needs no CPU, and a stopped
guest is listed as running until the update is due, as in PVE.
"""

import math

from moxwell.lab.proxmox.state import SimGuest, SimHost, SimRegion, SimStorage, StatdStatus

STATUS_LIFETIME = 300.0
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def update_if_due(region: SimRegion, now: float) -> None:
    """Run the update if it is due; called before every request."""
    period = region.pace.statd
    last = now if period <= 0 else math.floor(now / period) * period
    if last <= region.status_updated_at and period > 0:
        return
    region.status_updated_at = last
    if region.changed:
        update(region, region.changed)
        region.changed = {v for v in region.changed if v in region.guests and _lost(region, v)}


def update(region: SimRegion, vmids: set[int]) -> None:
    """Update the status of these guests."""
    for vmid in vmids:
        guest = region.guests.get(vmid)
        if guest is None:
            region.statd_status.pop(vmid, None)
        elif region.hosts[guest.node].online:
            region.statd_status[vmid] = guest_status(region, guest)


def is_status_valid(host: SimHost, now: float) -> bool:
    """Whether the last status of a node is still valid: until five minutes after its loss."""
    return host.online or (host.lost_at is not None and now - host.lost_at < STATUS_LIFETIME)


def _lost(region: SimRegion, vmid: int) -> bool:
    return not region.hosts[region.guests[vmid].node].online


def guest_status(region: SimRegion, guest: SimGuest) -> StatdStatus:
    conf = guest.live | guest.conf if guest.running else guest.conf
    return StatdStatus(
        kind=guest.kind,
        node=guest.node,
        status=(guest.status_word or "running") if guest.running else "stopped",
        name=display_name(guest),
        template=int(guest.template),
        maxcpu=cpus(region, guest),
        maxmem=memory_bytes(guest),
        maxdisk=boot_disk_bytes(guest),
        started=guest.started if guest.running else 0.0,
        lock=str(conf["lock"]) if conf.get("lock") else None,
        cpu_load=guest.cpu_share,
        memory_load=guest.memory_share,
    )


def display_name(guest: SimGuest) -> str:
    if guest.kind == "lxc":
        return str(guest.conf.get("hostname") or f"CT{guest.vmid}")
    return str(guest.conf.get("name") or f"VM {guest.vmid}")


def cpus(region: SimRegion, guest: SimGuest) -> int:
    """The number of vCPUs, limited by the host."""
    conf, host = guest.live if guest.running and guest.live else guest.conf, guest.node
    if guest.kind == "lxc":
        count = int(conf.get("cores") or region.hosts[host].cpus)
    else:
        count = int(conf.get("vcpus") or 0) or (
            int(conf.get("sockets") or 1) * int(conf.get("cores") or 1)
        )
    return min(count, region.hosts[host].cpus)


def memory_bytes(guest: SimGuest) -> int:
    conf = guest.live if guest.running and guest.live else guest.conf
    text = str(conf.get("memory") or "512").split(",")[0].removeprefix("current=")
    return int(float(text)) << 20


def boot_disk_bytes(guest: SimGuest) -> int:
    """The size of the boot disk; 0 if there is none."""
    conf = guest.conf
    if guest.kind == "lxc":
        return size_bytes(option(str(conf.get("rootfs", "")), "size"))
    order = str(conf.get("boot", ""))
    keys = order.removeprefix("order=").split(";") if "order=" in order else [*_DISKS]
    for key in keys:
        drive = str(conf.get(key, ""))
        if key[:2] in {"sc", "vi", "sa", "id"} and drive and "media=cdrom" not in drive:
            return size_bytes(option(drive, "size"))
    return 0


_DISKS = tuple(
    f"{bus}{n}" for bus, top in (("ide", 4), ("scsi", 31), ("virtio", 16), ("sata", 6))
    for n in range(top)
)  # fmt: skip


def option(text: str, name: str) -> str:
    """One option of a property string; "" if unset."""
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key == name:
            return value
    return ""


def size_bytes(text: str) -> int:
    """Convert ``32G`` to bytes."""
    if not text:
        return 0
    unit = UNITS.get(text[-1].upper(), 1)
    number = text[:-1] if text[-1].upper() in UNITS else text
    return int(float(number) * unit)


def storage_row(storage: SimStorage, node: str) -> dict[str, int]:
    """Capacity and usage as a node reports it."""
    used = min(storage.used(node), storage.capacity)
    return {"total": storage.capacity, "used": used, "avail": storage.capacity - used}
