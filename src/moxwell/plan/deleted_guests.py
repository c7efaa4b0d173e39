"""
The guests of machines that a plan deletes: region, host, VMID, disks and addresses. Reads only.
"""

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress
from moxwell.controllers.infra.machine.in_place import volumes
from moxwell.errors import Missing, Retryable
from moxwell.kube.reader import Reader
from moxwell.plan.report import MachineChange
from moxwell.pve.regions import Regions
from moxwell.scheduling import last_applied


async def deleted_guest(
    reader: Reader, regions: Regions, machine: ProxmoxMachine, group: str
) -> MachineChange:
    """What is deleted with a machine; disks that belong to volumes are kept."""
    spec, claim = machine.spec, machine.spec.claim
    addresses = (await reader.list(IPAddress, machine.namespace)).items
    mine = [a for a in addresses if a.spec.claim_ref.name.startswith(f"{machine.name}-net")]
    disks, kept = await _disks(regions, machine)
    return MachineChange(
        action="delete",
        group=group,
        name=machine.name,
        region=(spec.region or "") if claim else "",
        host=machine.status.proxmox_node or (claim.host if claim else ""),
        vmid=spec.virtual_machine_id or 0,
        addresses=tuple(sorted(a.spec.address for a in mine)),
        disks=disks,
        kept=kept,
        why_not="" if claim else "no host: it was not placed yet",
    )


async def _disks(
    regions: Regions, machine: ProxmoxMachine
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The disks that are destroyed with the guest, and those of others that are attached to it."""
    vmid = machine.spec.virtual_machine_id or 0
    region = regions.find(machine.spec.region or "")
    guest = region.inventory.find(vmid) if region is not None else None
    if region is None or guest is None:
        return (), ()
    try:
        config = await region.reader.qemu.config(guest.host, vmid)
    except (Retryable, Missing) as error:
        return (f"not read ({error})",), ()
    found = sorted(set(volumes(config).values()) - {"", "none"})
    own = tuple(volume for volume in found if last_applied.is_disk_of(volume, vmid))
    return own, tuple(volume for volume in found if volume not in own)
