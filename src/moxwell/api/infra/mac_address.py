"""
MAC addresses of a machine's network devices, derived from the owner's UID.

A MAC is known before the guest exists, so the bootstrap ISO can be written while the clone runs,
and a repeated pass writes the same one.
"""

import hashlib

from moxwell.api.infra.network import NetworkDevice

PREFIX = "BC:24:11"  # registered to Proxmox Server Solutions GmbH


def choose_mac(owner: str, name: str) -> str:
    """The MAC of the device ``name`` of an owner (a UID): deterministic, distinct per owner."""
    digest = hashlib.sha256(f"{owner}/{name}".encode()).hexdigest()[:6].upper()
    return f"{PREFIX}:{digest[0:2]}:{digest[2:4]}:{digest[4:6]}"


def mac_of(owner: str, device: NetworkDevice) -> str:
    """The MAC that the device specifies, else the derived one."""
    return (device.mac_address or choose_mac(owner, device.name)).upper()
