"""Names that a ProxmoxMachine's guest bears in Proxmox: owner mark, bootstrap ISO, providerID."""

import re

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.bootstrap.bootstrap_data import SCHEME
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import StorageOnHost, iso_name

BOOTING = "moxwell-booting"  # tag: the bootstrap ISO is attached, the node has not joined yet
KEPT = "moxwell-kept"  # tag: the ProxmoxMachine was deleted and its guest was to be kept
# The VMID and the owner key in the volume ID of a bootstrap ISO; "seed" is the earlier name.
BOOTSTRAP_ISO = re.compile(r":iso/moxwell-(?:bootstrap|seed)-(\d+)-([0-9a-f]+)\.iso$")


def mark_of(obj: ProxmoxMachine) -> Mark:
    """The owner mark of the guest: the UUID in the claim, which survives ``clusterctl move``."""
    claim = obj.spec.claim
    if claim is not None:
        return Mark(claim.uuid)
    known = obj.spec.provider_id.removeprefix(SCHEME)
    return Mark(known if known and "/" not in known else obj.uid)


def iso_storage_of(region: str, claim: Claim) -> StorageOnHost:
    """The storage of the bootstrap ISO."""
    return StorageOnHost(region, claim.host, claim.iso_storage)


def iso_filename(obj: ProxmoxMachine, claim: Claim) -> str:
    """The file name of the bootstrap ISO; it contains the VMID, since each guest has its own."""
    return iso_name(Mark(claim.uuid), f"bootstrap-{obj.spec.virtual_machine_id}")


def iso_volid(obj: ProxmoxMachine, claim: Claim) -> str:
    """The volume ID of the bootstrap ISO."""
    return f"{claim.iso_storage}:iso/{iso_filename(obj, claim)}"
