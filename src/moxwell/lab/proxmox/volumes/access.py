"""
Permission checks for volumes, shared by content lists, GET and attach.

``Datastore.Allocate`` allows all; ISOs and container templates require the permission to see the
storage; images require ``VM.Config.Disk`` on the guest whose VMID is in the name.
"""

from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.volumes.volume_store import VolumeStore


def check_volume(
    call: PveCall,
    store: VolumeStore,
    volid: str,
    *,
    vmid: int | None = None,
    kind: str | None = None,
) -> None:
    """Raise PVE's 403 unless the caller may use the volume (for guest ``vmid``)."""
    if volid.startswith("/") or ":" not in volid:
        if not call.is_root:
            raise die("Only root can pass arbitrary filesystem paths.")
        return
    parsed = store.parse(volid)
    if kind is not None and parsed.kind != kind:
        raise die(f"unable to use volume {volid} - content type needs to be '{kind}'")
    where = f"/storage/{volid.partition(':')[0]}"
    if call.has_privileges(where, "Datastore.Allocate"):
        return
    if parsed.kind in ("iso", "vztmpl", "import"):
        call.check(where, "Datastore.AllocateSpace", "Datastore.Audit", any_of=True)
    elif parsed.vmid is not None and parsed.vmid == vmid:
        return
    elif parsed.kind == "backup" and parsed.vmid is not None:
        call.check(where, "Datastore.AllocateSpace")
        call.check_vm(parsed.vmid, "VM.Backup")
    elif parsed.kind == "images" and parsed.vmid is not None:
        call.check(where, "Datastore.Audit")
        call.check_vm(parsed.vmid, "VM.Config.Disk")
    else:
        raise die(f"missing privileges to access {volid}")


def may_see(call: PveCall, store: VolumeStore, volid: str) -> bool:
    try:
        check_volume(call, store, volid)
    except PveException:
        return False
    return True
