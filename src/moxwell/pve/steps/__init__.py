"""
Steps: every change that Moxwell makes in Proxmox, as a frozen value that proves ownership itself.

A step names its target, prints, may be performed twice and never waits for a task. Controllers
perform it with ``Region.perform(step, owner)``, which follows the task and updates the inventory. A
package may define steps of its own: a subclass of ``Step`` implements ``region``, ``owned`` and
``perform``. Where a step does not fit, ``Region.writer(Owned(...))`` returns a client that can
write only to what the caller claims to own. Both ways end in
:class:`moxwell.pve.effects.Effects`, which checks the target against ``Owned``, refuses in a dry
run, writes the audit record and counts. Reading needs neither: use ``Region.reader``.
"""

from moxwell.pve.steps.config import (
    AttachIso,
    Configure,
    EjectIso,
    RemoveDisk,
    ResizeDisk,
    SlotTaken,
    changed_values,
    keys_to_delete,
)
from moxwell.pve.steps.contract import Expectation, GuestRef, GuestStep, Step
from moxwell.pve.steps.ha_firewall import (
    AddToHaRule,
    LastHaRuleResource,
    RegisterHa,
    RemoveFirewallGroup,
    RemoveFromHaRule,
    RemoveHa,
    SetFirewall,
)
from moxwell.pve.steps.lifecycle import (
    Clone,
    CreateGuest,
    Destroy,
    MakeTemplate,
    Migrate,
    RemoveStaleClone,
)
from moxwell.pve.steps.media import (
    DeleteVolume,
    DownloadImage,
    StorageOnHost,
    UploadImage,
    UploadIso,
    VolumeStep,
    iso_name,
)
from moxwell.pve.steps.pools import DeletePool, EnsurePool, SetPool
from moxwell.pve.steps.power import Shutdown, Start, Stop
from moxwell.pve.steps.sdn import ReleaseVnetAddress, ReserveVnetAddress
from moxwell.pve.steps.security_groups import DeleteSecurityGroup, EnsureSecurityGroup
from moxwell.pve.steps.tenant_tokens import RevokeToken, TenantToken
from moxwell.pve.steps.vnets import ApplySdn, DeleteVnet, EnsureVnet, VnetSubnet

__all__ = [
    "AddToHaRule",
    "ApplySdn",
    "AttachIso",
    "Clone",
    "Configure",
    "CreateGuest",
    "DeletePool",
    "DeleteSecurityGroup",
    "DeleteVnet",
    "DeleteVolume",
    "Destroy",
    "DownloadImage",
    "EjectIso",
    "EnsurePool",
    "EnsureSecurityGroup",
    "EnsureVnet",
    "Expectation",
    "GuestRef",
    "GuestStep",
    "LastHaRuleResource",
    "MakeTemplate",
    "Migrate",
    "RegisterHa",
    "ReleaseVnetAddress",
    "RemoveDisk",
    "RemoveFirewallGroup",
    "RemoveFromHaRule",
    "RemoveHa",
    "RemoveStaleClone",
    "ReserveVnetAddress",
    "ResizeDisk",
    "RevokeToken",
    "SetFirewall",
    "SetPool",
    "Shutdown",
    "SlotTaken",
    "Start",
    "Step",
    "Stop",
    "StorageOnHost",
    "TenantToken",
    "UploadImage",
    "UploadIso",
    "VnetSubnet",
    "VolumeStep",
    "changed_values",
    "iso_name",
    "keys_to_delete",
]
