"""
Who may use a volume: the rule that lists, GET and attaching share.

``Datastore.Allocate`` opens everything; ISOs and templates need to be seen; images belong to the
guest whose id their name carries, and need ``VM.Config.Disk`` there.
"""

from moxwell.lab.proxmox.errors import PveError, die
from moxwell.lab.proxmox.request_context import Call
from moxwell.lab.proxmox.volumes.volume_store import Stock


def check_volume(
    call: Call, place: Stock, volid: str, *, vmid: int | None = None, kind: str | None = None
) -> None:
    """Raise PVE's refusal unless the caller may use the volume (for guest ``vmid``)."""
    if volid.startswith("/") or ":" not in volid:
        if not call.is_root:
            raise die("Only root can pass arbitrary filesystem paths.")
        return
    parsed = place.parse(volid)
    if kind is not None and parsed.kind != kind:
        raise die(f"unable to use volume {volid} - content type needs to be '{kind}'")
    where = f"/storage/{volid.partition(':')[0]}"
    if call.may(where, "Datastore.Allocate"):
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


def may_see(call: Call, place: Stock, volid: str) -> bool:
    try:
        check_volume(call, place, volid)
    except PveError:
        return False
    return True
