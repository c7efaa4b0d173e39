"""The memory of a VM as a volume, for suspend to disk and snapshots with memory."""

from moxwell.lab.proxmox.config_schema import devices, vm
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import machine
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimGuest
from moxwell.lab.proxmox.tasks import WorkerContext
from moxwell.lab.proxmox.volumes import names


def choose_storage(call: PveCall, guest: SimGuest) -> str:
    """The storage for the state: as configured, else a storage of the disks, shared first."""
    if guest.conf.get("vmstatestorage"):
        return str(guest.conf["vmstatestorage"])
    found = [d.storage for d in files.drives(guest.conf) if d.storage and not d.is_cdrom_media]
    store = files.volume_store(call)
    shared = [name for name in found if store.get_storage(name).shared]
    return (shared or found or ["local"])[0]


async def save(
    call: PveCall, guest: SimGuest, ctx: WorkerContext, storage: str, label: str = ""
) -> str:
    """Save the memory to a new volume; returns its volume id."""
    store = files.volume_store(call)
    memory = vm.memory_mib(guest.conf)
    label = label or f"suspend-{call.runtime.clock.now():%Y-%m-%d}"
    file = f"vm-{guest.vmid}-state-{label}"
    file += ".raw" if names.has_path(store.get_storage(storage)) else ""
    volid = store.alloc(storage, guest.vmid, "raw", (memory * 2 + 500) << 20, file)
    ctx.log(f"saving VM state and RAM using storage '{storage}'")
    await ctx.sleep((memory << 20) / call.region.pace.bandwidth)
    if not guest.running:
        store.free(volid)
        raise die("savevm not active")
    return volid


def blockers(conf: Conf) -> list[str]:
    """The options of a guest whose memory cannot be saved or moved."""
    found = [name for name in ("amd-sev", "intel-tdx") if conf.get(name)]
    return found + (["virtiofs"] if any(name.startswith("virtiofs") for name in conf) else [])


def check_blockers(conf: Conf, *, state: bool) -> None:
    """Some devices cannot save their state with the memory."""
    found = blockers(conf) if state else []
    if found:
        lead = "Cannot live-migrate, snapshot (with RAM), or hibernate a VM with: "
        raise die(lead + ", ".join(found))


def running_options(call: PveCall, guest: SimGuest) -> Conf:
    """The hardware that a guest needs to load its state again."""
    cards = [name for name, net in files.nets(guest.conf) if net.get("model") == "virtio"]
    kind = devices.read(devices.CPU[min(call.major, 9)], guest.conf.get("cpu", "")).get("cputype")
    found: Conf = {
        "runningmachine": machine.versioned("i440fx", call.major),
        "runningcpu": f"{kind or 'kvm64'},enforce,+kvm_pv_eoi,+kvm_pv_unhalt",
    }
    if call.major >= 9 and cards:
        found["running-nets-host-mtu"] = ",".join(f"{name}=1500" for name in sorted(cards))
    return found


def is_suspended(guest: SimGuest) -> bool:
    return guest.lock == "suspended"


def drop(call: PveCall, guest: SimGuest) -> None:
    """Delete volume and lock after the state was loaded."""
    guest.conf.pop("lock", None)
    volid = str(guest.conf.pop("vmstate", "") or "")
    for key in ("runningmachine", "runningcpu", "running-nets-host-mtu"):
        guest.conf.pop(key, None)
    store = files.volume_store(call)
    if volid and store.find(volid) is not None:
        store.free(volid)
    files.write(call.runtime, guest)
