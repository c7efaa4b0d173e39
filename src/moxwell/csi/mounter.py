"""
Formats, mounts and grows file systems on a node: the interface and its implementation.

``SystemMounter`` runs mkfs, mount, cryptsetup and similar programs;
:mod:`moxwell.testing.csi_files` replaces it in tests. A disk is formatted only if blkid finds
nothing and its first MiB is zero, or if the format marker (:mod:`moxwell.csi.format_marker`) shows
an interrupted format. A new LUKS device reads as random data, so the label ``EMPTY`` in its header
says that it has no file system yet.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from moxwell.csi import format_marker
from moxwell.csi.errors import DeviceMismatch
from moxwell.errors import Denied, Missing, Retryable, Unsupported

EMPTY = "moxwell-empty"
NO_KEY = 2  # exit code of cryptsetup if no key slot matches
LUKS_FORMAT = (
    "luksFormat", "--batch-mode", "--type", "luks2", "--cipher", "aes-xts-plain64",
    "--label", EMPTY,
    "--pbkdf-memory", "65536", "--iter-time", "1000",  # the default is 1 GiB, too much for a pod
)  # fmt: skip
MKFS = {  # no discard, which would erase the format marker
    "ext4": ("-F", "-m0", "-E", "nodiscard"),
    "xfs": ("-f", "-K"),
}


class CommandFailed(Retryable):
    """A program exited with an error."""

    reason = "CommandFailed"


class WrongKey(Denied):
    """The passphrase does not unlock the device."""

    reason = "WrongKey"


class CommandNotFound(Unsupported):
    """A required program is not installed."""

    reason = "CommandNotFound"


@dataclass(frozen=True, slots=True)
class MountEntry:
    """One line of the mount table."""

    device: str  # major:minor
    root: str  # path of the mount within the file system
    target: str
    read_only: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes and inodes of a file system; inodes are 0 for a block device."""

    total: int
    used: int = 0
    free: int = 0
    inodes: int = 0
    inodes_used: int = 0
    inodes_free: int = 0


class Mounter(Protocol):
    """The mount operations that the Node service needs."""

    async def number(self, path: str) -> str:
        """The major:minor number of a device."""
        ...

    async def table(self) -> tuple[MountEntry, ...]: ...

    async def probe(self, device: str) -> str:
        """
        The file system type, ``crypto_LUKS``, or "" for a disk that is empty or partly formatted.
        """
        ...

    async def make(self, device: str, kind: str, options: Sequence[str]) -> None: ...

    async def check(self, device: str, kind: str) -> None: ...

    async def mount(self, device: str, target: str, kind: str, options: Sequence[str]) -> None: ...

    async def bind(self, source: str, target: str, *, read_only: bool) -> None: ...

    async def unmount(self, target: str) -> None: ...

    async def grow(self, device: str, target: str, kind: str) -> None: ...

    async def trim(self, target: str) -> None: ...

    async def usage(self, path: str) -> Usage: ...

    async def size(self, device: str) -> int: ...

    async def open_luks(self, device: str, name: str, key: bytes, *, fresh: bool) -> str: ...

    async def is_empty_luks(self, device: str) -> bool:
        """Return whether the LUKS device has no file system yet."""
        ...

    async def fill_luks(self, device: str) -> None:
        """Record that the LUKS device has a file system."""
        ...

    async def close_luks(self, name: str) -> None: ...

    async def grow_luks(self, name: str, key: bytes) -> None: ...


async def run(*command: str, stdin: bytes = b"", good: Sequence[int] = (0,)) -> tuple[int, str]:
    """Run a program; returns exit code and output, raises ProgramFailed on other exit codes."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise CommandNotFound(f"{command[0]} is not installed on the node") from error
    out, err = await process.communicate(stdin)
    code = process.returncode or 0
    if code not in good:
        text = err.decode(errors="replace").strip()[-400:]
        raise CommandFailed(f"{command[0]} exited with code {code}: {text}")
    return code, out.decode(errors="replace")


def parse_table(text: str) -> tuple[MountEntry, ...]:
    """Parse ``/proc/self/mountinfo``."""
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        parts, rest = left.split(), right.split()
        if len(parts) >= 6:
            target = parts[4].replace("\\040", " ")
            source = rest[1] if len(rest) > 1 else ""
            only = "ro" in parts[5].split(",")
            found.append(MountEntry(parts[2], parts[3], target, only, source))
    return tuple(found)


class SystemMounter:
    """Runs the programs of the operating system."""

    async def number(self, path: str) -> str:
        return _number(path)

    async def table(self) -> tuple[MountEntry, ...]:
        return parse_table(_read("/proc/self/mountinfo"))

    async def probe(self, device: str) -> str:
        code, out = await run(
            "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "value", device, good=(0, 2)
        )
        found = out.split()
        kind = found[0] if code == 0 and found else ""
        if format_marker.is_marked(device) and format_marker.is_unused(device, kind):
            return ""
        if not kind and not _is_blank(device):
            raise DeviceMismatch(f"{device} is not empty and its content is not recognised")
        return kind

    async def make(self, device: str, kind: str, options: Sequence[str]) -> None:
        _on_disk(format_marker.mark, device)
        await run(f"mkfs.{kind}", *MKFS.get(kind, ()), *options, device)
        _on_disk(format_marker.clear, device)

    async def check(self, device: str, kind: str) -> None:
        if kind == "ext4":
            await run("fsck", "-a", device, good=(0, 1))

    async def mount(self, device: str, target: str, kind: str, options: Sequence[str]) -> None:
        if "ro" not in options:
            _on_disk(format_marker.clear, device)  # a crash may have left the marker
        await run("mount", "-t", kind, "-o", ",".join(options) or "defaults", device, target)

    async def bind(self, source: str, target: str, *, read_only: bool) -> None:
        await run("mount", "--bind", source, target)
        if read_only:
            await run("mount", "-o", "remount,bind,ro", target)

    async def unmount(self, target: str) -> None:
        await run("umount", target)

    async def grow(self, device: str, target: str, kind: str) -> None:
        if kind == "xfs":
            await run("xfs_growfs", target)
        else:
            await run("resize2fs", device)

    async def trim(self, target: str) -> None:
        await run("fstrim", target, good=(0, 1, 32))

    async def usage(self, path: str) -> Usage:
        return _usage(path)

    async def size(self, device: str) -> int:
        _, out = await run("blockdev", "--getsize64", device)
        return int(out)

    async def open_luks(self, device: str, name: str, key: bytes, *, fresh: bool) -> str:
        if fresh:
            _on_disk(format_marker.mark, device)
            await run("cryptsetup", *LUKS_FORMAT, "--key-file", "-", device, stdin=key)
        probing = ("open", "--test-passphrase", "--key-file", "-", device)
        code, _ = await run("cryptsetup", *probing, stdin=key, good=(0, NO_KEY))
        if code == NO_KEY:
            raise WrongKey(f"the passphrase does not unlock {device}")
        if not _exists(f"/dev/mapper/{name}"):
            _on_disk(format_marker.clear, device)
            await run("cryptsetup", "open", "--key-file", "-", device, name, stdin=key)
        return f"/dev/mapper/{name}"

    async def is_empty_luks(self, device: str) -> bool:
        _, out = await run("blkid", "-p", "-s", "LABEL", "-o", "value", device, good=(0, 2))
        return out.strip() == EMPTY

    async def fill_luks(self, device: str) -> None:
        await run("cryptsetup", "config", "--label", "", device)

    async def close_luks(self, name: str) -> None:
        if _exists(f"/dev/mapper/{name}"):
            await run("cryptsetup", "close", name)

    async def grow_luks(self, name: str, key: bytes) -> None:
        await run("cryptsetup", "resize", "--key-file", "-", name, stdin=key)


def _number(path: str) -> str:
    try:
        device = Path(path).stat()
    except OSError as error:
        raise Missing(f"{path} does not exist") from error
    if not stat.S_ISBLK(device.st_mode):
        raise DeviceMismatch(f"{path} is not a block device")
    return f"{os.major(device.st_rdev)}:{os.minor(device.st_rdev)}"


def _read(path: str) -> str:
    return Path(path).read_text()


def _exists(path: str) -> bool:
    return Path(path).exists()


def _on_disk(act: Callable[[str], None], device: str) -> None:
    try:
        act(device)
    except OSError as error:
        raise CommandFailed(f"{device} cannot be written: {error.strerror}") from error


def _is_blank(device: str) -> bool:
    """Return whether the first MiB, where file systems have their superblock, is zero."""
    with Path(device).open("rb") as disk:
        return not any(disk.read(1 << 20))


def _usage(path: str) -> Usage:
    try:
        seen = os.statvfs(path)
    except OSError as error:
        raise Missing(f"{path} does not exist") from error
    total, free = seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize
    used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
    inodes = seen.f_files
    return Usage(total, used, free, inodes, inodes - seen.f_ffree, seen.f_ffree)
