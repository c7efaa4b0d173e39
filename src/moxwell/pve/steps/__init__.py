"""Steps: every change that Moxwell makes in Proxmox, as a value under one contract."""

from moxwell.pve.steps.around import (
    JoinHaRule,
    JoinPool,
    RegisterHa,
    RemoveHa,
    RemoveSnapshot,
    SetFirewall,
    TakeSnapshot,
)
from moxwell.pve.steps.config import (
    AttachDisk,
    AttachIso,
    Configure,
    DetachDisk,
    EjectIso,
    MoveDisk,
    Resize,
    Revert,
    SlotTaken,
    differing,
    lingering,
)
from moxwell.pve.steps.contract import Expectation, Guest, GuestStep, Step
from moxwell.pve.steps.life import Clone, Create, Destroy, MakeTemplate, Migrate, RemoveCarcass
from moxwell.pve.steps.media import DeleteVolume, Download, Shelf, UploadIso, VolumeStep, iso_name
from moxwell.pve.steps.power import Reboot, Shutdown, Start, Stop

__all__ = [
    "AttachDisk",
    "AttachIso",
    "Clone",
    "Configure",
    "Create",
    "DeleteVolume",
    "Destroy",
    "DetachDisk",
    "Download",
    "EjectIso",
    "Expectation",
    "Guest",
    "GuestStep",
    "JoinHaRule",
    "JoinPool",
    "MakeTemplate",
    "Migrate",
    "MoveDisk",
    "Reboot",
    "RegisterHa",
    "RemoveCarcass",
    "RemoveHa",
    "RemoveSnapshot",
    "Resize",
    "Revert",
    "SetFirewall",
    "Shelf",
    "Shutdown",
    "SlotTaken",
    "Start",
    "Step",
    "Stop",
    "TakeSnapshot",
    "UploadIso",
    "VolumeStep",
    "differing",
    "iso_name",
    "lingering",
]
