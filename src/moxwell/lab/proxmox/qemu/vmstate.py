"""
The memory of a VM as a volume: for suspending to disk and for snapshots with memory.
"""

from moxwell.lab.proxmox.config_schema import vm
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.state import Guest
from moxwell.lab.proxmox.tasks import Work
from moxwell.lab.proxmox.volumes import names


def choose_storage(call: Call, guest: Guest) -> str:
    """Where the state goes: as configured, else a storage of the disks, shared first."""
    if guest.conf.get("vmstatestorage"):
        return str(guest.conf["vmstatestorage"])
    found = [d.storage for d in files.drives(guest.conf) if d.storage and not d.is_cdrom_media]
    place = files.stock(call)
    shared = [name for name in found if place.get_storage(name).shared]
    return (shared or found or ["local"])[0]


async def save(call: Call, guest: Guest, work: Work, storage: str, label: str = "") -> str:
    """Write the memory into a new volume; its volume id."""
    place = files.stock(call)
    memory = vm.memory_mib(guest.conf)
    label = label or f"suspend-{call.desk.clock.now():%Y-%m-%d}"
    file = f"vm-{guest.vmid}-state-{label}"
    file += ".raw" if names.has_path(place.get_storage(storage)) else ""
    volid = place.alloc(storage, guest.vmid, "raw", (memory * 2 + 500) << 20, file)
    work.log(f"saving VM state and RAM using storage '{storage}'")
    await work.sleep((memory << 20) / call.region.pace.bandwidth)
    if not guest.running:
        place.free(volid)
        raise die("savevm not active")
    return volid


def running_machine(call: Call) -> str:
    return f"pc-i440fx-{'9.2' if call.major < 9 else '10.1'}+pve0"


def is_suspended(guest: Guest) -> bool:
    return guest.lock == "suspended"


def drop(call: Call, guest: Guest) -> None:
    """The state was loaded: volume and lock go."""
    guest.conf.pop("lock", None)
    volid = str(guest.conf.pop("vmstate", "") or "")
    for key in ("runningmachine", "runningcpu"):
        guest.conf.pop(key, None)
    place = files.stock(call)
    if volid and place.find(volid) is not None:
        place.free(volid)
    files.write(call.desk, guest)
