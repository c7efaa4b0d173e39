"""Translates the hardware of a template to Proxmox's configuration. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moxwell.pve import property_strings

DISK = "scsi0"
CLOUD_INIT = "ide2"  # the slot in which a machine later has its bootstrap ISO
STORAGE = "{storage}"  # stands for the storage of the disks, which depends on the host
AGENT = "enabled=1,fstrim_cloned_disks=1"
DRIVES = (DISK, CLOUD_INIT, "efidisk0", "tpmstate0")


@dataclass(frozen=True, slots=True)
class TemplateNic:
    """A network device; addresses are those of Proxmox's cloud-init drive."""

    bridge: str = "vmbr0"
    model: str = "virtio"
    vlan: int | None = None
    mtu: int | None = None
    firewall: bool | None = None
    addresses: Mapping[str, str] | None = None  # ip, gw, ip6, gw6


@dataclass(frozen=True, slots=True)
class TemplateHardware:
    """The hardware that matters to a template; machines change CPU, memory and size later."""

    nics: Sequence[TemplateNic] = (TemplateNic(),)
    machine: str = "q35"
    uefi: bool = False
    tpm: str = ""  # v1.2 or v2.0
    cpu: str = "x86-64-v2-AES"
    agent: str = AGENT
    vga: str = "serial0"
    cloud_init_drive: bool = True
    memory_mib: int = 1024
    cores: int = 1
    on_boot: bool | None = None
    pci: Sequence[str] = ()
    nameservers: Sequence[str] = ()


def config_of(hardware: TemplateHardware) -> dict[str, str]:
    """The configuration without the boot disk; ``{storage}`` stands for the storage of disks."""
    config = {
        "ostype": "l26",
        "machine": hardware.machine,
        "bios": "ovmf" if hardware.uefi else "seabios",
        "cpu": hardware.cpu,
        "cores": str(hardware.cores),
        "sockets": "1",
        "memory": str(hardware.memory_mib),
        "balloon": "0",
        "scsihw": "virtio-scsi-single",
        "serial0": "socket",
        "vga": hardware.vga,
        "tablet": "0",
        "agent": hardware.agent,
    }
    if hardware.uefi:
        config["efidisk0"] = f"{STORAGE}:1,efitype=4m,pre-enrolled-keys=0"
    if hardware.tpm:
        config["tpmstate0"] = f"{STORAGE}:1,version={hardware.tpm}"
    if hardware.cloud_init_drive:
        config[CLOUD_INIT] = f"{STORAGE}:cloudinit"
    if hardware.on_boot is not None:
        config["onboot"] = str(int(hardware.on_boot))
    if hardware.nameservers:
        config["nameserver"] = " ".join(hardware.nameservers)
    config |= {f"hostpci{n}": text for n, text in enumerate(hardware.pci)}
    for n, nic in enumerate(hardware.nics):
        config |= _nic(n, nic)
    return config


def _nic(number: int, nic: TemplateNic) -> dict[str, str]:
    options = {"bridge": nic.bridge, "tag": nic.vlan, "mtu": nic.mtu, "firewall": nic.firewall}
    config = {f"net{number}": property_strings.render(nic.model, options)}
    if nic.addresses:
        config[f"ipconfig{number}"] = property_strings.render("", nic.addresses)
    return config


def create_config(hardware: Mapping[str, str], storage: str, image: str) -> dict[str, str]:
    """The configuration for the request that creates the guest and imports the image."""
    config = {key: value.replace(STORAGE, storage) for key, value in hardware.items()}
    config[DISK] = f"{storage}:0,import-from={image},discard=on,iothread=1"
    config["boot"] = f"order={DISK}"
    return config


def in_place(hardware: Mapping[str, str]) -> dict[str, str]:
    """The part of the configuration that can change after the guest is a template."""
    return {key: value for key, value in hardware.items() if key not in DRIVES}
