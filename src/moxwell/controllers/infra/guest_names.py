"""Names of a ProxmoxMachine's guest in Proxmox: owner mark, bootstrap ISO, providerID."""

import re

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.bootstrap.bootstrap_data import SCHEME
from moxwell.controllers.infra.owners import cluster_key
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import StorageOnHost, iso_name

BOOTING = "moxwell-booting"  # tag: the bootstrap ISO is attached, the node has not joined yet
KEPT = "moxwell-kept"  # tag: the ProxmoxMachine was deleted and its guest was to be kept
# The VMID, the owner key and the cluster key in the volume ID of a bootstrap ISO; earlier versions
# had no cluster key, and "seed" instead of "bootstrap".
BOOTSTRAP_ISO = re.compile(
    r":iso/moxwell-(?:bootstrap|seed)-(\d+)-([0-9a-f]+)(?:-([a-z2-7]{16}))?\.iso$"
)


def mark_of(obj: ProxmoxMachine) -> Mark:
    """
    The owner mark of the guest: the UUID in the claim, which survives ``clusterctl move``.

    Namespace and cluster are part of it, so that a copied claim owns nothing.
    """
    claim, cluster = obj.spec.claim, cluster_key(obj)
    bound = f"{obj.namespace}/{cluster.name if cluster else ''}"
    if claim is not None:
        return Mark(claim.uuid, bound)
    known = obj.spec.provider_id.removeprefix(SCHEME)
    return Mark(known if known and "/" not in known else obj.uid, bound)


def iso_storage_of(region: str, claim: Claim) -> StorageOnHost:
    """The storage of the bootstrap ISO."""
    return StorageOnHost(region, claim.host, claim.iso_storage)


def iso_filename(obj: ProxmoxMachine, claim: Claim) -> str:
    """The file name of the bootstrap ISO; it contains the VMID, since each guest has its own."""
    return iso_name(mark_of(obj), f"bootstrap-{obj.spec.virtual_machine_id}")


def iso_volid(obj: ProxmoxMachine, claim: Claim) -> str:
    """The volume ID of the bootstrap ISO."""
    return f"{claim.iso_storage}:iso/{iso_filename(obj, claim)}"
