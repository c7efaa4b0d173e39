"""Checks image files by their first bytes, as ``qemu-img info`` and ``tar`` do in PVE."""

import io
import struct
import tarfile

from moxwell.lab.proxmox.errors import die

_QCOW2 = b"QFI\xfb"
_TAR_BLOCK = 512
_VMDK = (b"KDMV", b"COWD", b"# Disk DescriptorFile")


def check_image(form: str, data: bytes, path: str) -> None:
    """Raise the error of the tool that PVE runs on an uploaded or downloaded image."""
    if form == "qcow2" and not data.startswith(_QCOW2):
        raise die(f"qemu-img: Could not open '{path}': Image is not in qcow2 format")
    if form == "vmdk" and not data.startswith(_VMDK):
        raise die(f"qemu-img: Could not open '{path}': invalid VMDK image descriptor")
    if form == "ova":
        _check_ova(data, path)


def _check_ova(data: bytes, path: str) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            names = archive.getnames()
    except tarfile.TarError as problem:
        if data[:_TAR_BLOCK] != bytes(_TAR_BLOCK):  # such a block ends an archive
            raise die(f"command 'tar -t -f {path}' failed: exit code 2") from problem
        names = []
    if not any(name.endswith(".ovf") for name in names):
        raise die("ova archive has no .ovf file inside")


def virtual_size(form: str, data: bytes) -> int | None:
    """The size of the disk in a qcow2 image; None if the file itself is the disk."""
    if form == "qcow2" and data.startswith(_QCOW2) and len(data) >= 32:
        return int(struct.unpack(">Q", data[24:32])[0])
    return None


def qcow2_bytes(size: int) -> bytes:
    """The header of an empty qcow2 image of this virtual size."""
    head = _QCOW2 + struct.pack(">IQIIQ", 3, 0, 0, 16, size)
    return head.ljust(112, b"\0")
