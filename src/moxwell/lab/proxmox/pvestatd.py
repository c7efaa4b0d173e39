"""
pvestatd: what the cluster believes about its guests, up to ten seconds late.

Nothing ticks. A change puts the guest's id into ``Region.changed``; whoever looks next first does
the round that would have happened meanwhile. So a quiet region costs nothing however many guests
it has, and a list shows a stopped guest as running until the round is due, as the real one does.
"""

import math

from moxwell.lab.proxmox.state import Guest, Host, Region, Report, Storage

REMEMBERED = 300.0
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def round_due(region: Region, now: float) -> None:
    """Do the round that is due, if one is; called before anything changes or looks."""
    period = region.pace.statd
    last = now if period <= 0 else math.floor(now / period) * period
    if last <= region.reported_at and period > 0:
        return
    region.reported_at = last
    if region.changed:
        look(region, region.changed)
        region.changed = {v for v in region.changed if v in region.guests and _lost(region, v)}


def look(region: Region, vmids: set[int]) -> None:
    """Write new reports about these guests."""
    for vmid in vmids:
        guest = region.guests.get(vmid)
        if guest is None:
            region.reports.pop(vmid, None)
        elif region.hosts[guest.node].online:
            region.reports[vmid] = report(region, guest)


def heard_of(host: Host, now: float) -> bool:
    """Is what a host last said still remembered? Five minutes after its loss it is not."""
    return host.online or (host.lost_at is not None and now - host.lost_at < REMEMBERED)


def _lost(region: Region, vmid: int) -> bool:
    return not region.hosts[region.guests[vmid].node].online


def report(region: Region, guest: Guest) -> Report:
    conf = guest.live | guest.conf if guest.running else guest.conf
    return Report(
        kind=guest.kind,
        node=guest.node,
        status="running" if guest.running else "stopped",
        name=display_name(guest),
        template=int(guest.template),
        maxcpu=cpus(region, guest),
        maxmem=memory_bytes(guest),
        maxdisk=boot_disk_bytes(guest),
        started=guest.started if guest.running else 0.0,
        lock=str(conf["lock"]) if conf.get("lock") else None,
    )


def display_name(guest: Guest) -> str:
    if guest.kind == "lxc":
        return str(guest.conf.get("hostname") or f"CT{guest.vmid}")
    return str(guest.conf.get("name") or f"VM {guest.vmid}")


def cpus(region: Region, guest: Guest) -> int:
    """Virtual CPUs, never more than the host has."""
    conf, host = guest.live if guest.running and guest.live else guest.conf, guest.node
    if guest.kind == "lxc":
        count = int(conf.get("cores") or region.hosts[host].cpus)
    else:
        count = int(conf.get("vcpus") or 0) or (
            int(conf.get("sockets") or 1) * int(conf.get("cores") or 1)
        )
    return min(count, region.hosts[host].cpus)


def memory_bytes(guest: Guest) -> int:
    conf = guest.live if guest.running and guest.live else guest.conf
    text = str(conf.get("memory") or "512").split(",")[0].removeprefix("current=")
    return int(float(text)) << 20


def boot_disk_bytes(guest: Guest) -> int:
    """The size of the boot disk, 0 where there is none."""
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
    """One option of a property string, "" where it is not set."""
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key == name:
            return value
    return ""


def size_bytes(text: str) -> int:
    """``32G`` in bytes."""
    if not text:
        return 0
    unit = UNITS.get(text[-1].upper(), 1)
    number = text[:-1] if text[-1].upper() in UNITS else text
    return int(float(number) * unit)


def storage_row(storage: Storage, node: str) -> dict[str, int]:
    """Capacity as a node sees it."""
    used = min(storage.used(node), storage.capacity)
    return {"total": storage.capacity, "used": used, "avail": storage.capacity - used}
