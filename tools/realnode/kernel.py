"""
A kernel for QEMU guests: Debian's cloud kernel, and an initramfs that mounts the root disk.

``python -m realnode.kernel`` downloads the package with apt, into the cache of envtest. The
modules, and the guest agent with its library, are a layer of the guest's root file system.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from envtest import disks, locate
from realnode import mirror, template

META, REVISION = "linux-image-cloud-amd64", 1
PROGRAM = "qemu-system-x86_64"
NEEDED = {PROGRAM: "qemu-system-x86", "depmod": "kmod"}  # programs and their packages
AGENT = ("qemu-guest-agent", "liburing2", "libnuma1")
MODULES = ("virtio_pci", "virtio_blk", "ext4")
INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules); do insmod $module; done
until [ -b /dev/vda ]; do sleep 0.1; done
mount -t ext4 /dev/vda /root
umount /proc /sys
exec switch_root /root /sbin/init
"""


def folder() -> Path:
    """The kernel (``vmlinuz``), ``initrd`` and ``layer``, made or not."""
    return locate.cache() / f"kernel-{template.SUITE}-{REVISION}"


def make() -> Path:
    """Make the folder unless it is there."""
    made = folder()
    if made.exists():
        return made
    absent = [package for name, package in NEEDED.items() if shutil.which(name) is None]
    if absent and not disks.install(absent):
        raise SystemExit(f"realnode: {', '.join(absent)} cannot be installed")
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".kernel-") as scratch:
        target = Path(scratch) / "made"
        _unpack(Path(scratch), target / "layer")
        (image,) = (target / "layer/boot").glob("vmlinuz-*")
        version = image.name.removeprefix("vmlinuz-")
        image.rename(target / "vmlinuz")
        shutil.rmtree(target / "layer/boot")
        shutil.move(target / "layer/lib/modules", target / "layer/usr/lib/modules")
        shutil.rmtree(target / "layer/lib")
        (target / "layer/lib").symlink_to("usr/lib")
        subprocess.run(["depmod", "-b", str(target / "layer"), version], check=True)
        _initrd(target, version)
        (target / "layer/lib").unlink()
        target.rename(made)
    return made


def _unpack(scratch: Path, layer: Path) -> None:
    """Unpack the kernel, and the guest agent from the mirror of the image."""
    layer.joinpath("usr/lib").mkdir(parents=True)
    done = subprocess.run(
        ["apt-cache", "depends", META], check=True, capture_output=True, text=True
    )
    name = next(w for w in done.stdout.split() if w.startswith("linux-image-") and w != META)
    subprocess.run(["apt-get", "-qq", "download", name], cwd=scratch, check=True)
    pool = template.image_folder() / mirror.FOLDER / "debian/pool"
    debs = [*scratch.glob("*.deb"), *(f for n in AGENT for f in pool.glob(f"{n}_*.deb"))]
    for deb in debs:
        subprocess.run(["dpkg-deb", "-x", str(deb), str(layer)], check=True)
    units = layer / "lib/systemd/system", layer / "lib/udev"
    for place in units:  # /lib is a link in the root file system
        if place.exists():
            target = layer / "usr" / place.relative_to(layer)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(place, target)


def _initrd(target: Path, version: str) -> None:
    """busybox, the modules of the root disk in the order of their dependencies, and ``init``."""
    tree = target / "initramfs"
    for name in ("bin", "proc", "sys", "dev", "root", "lib"):
        (tree / name).mkdir(parents=True)
    shutil.copy2(template.folder() / "bin/busybox", tree / "bin/busybox")
    for applet in ("sh", "mount", "umount", "insmod", "cat", "sleep", "switch_root"):
        (tree / "bin" / applet).symlink_to("busybox")
    words = ["modprobe", "-d", str(target / "layer"), "-S", version, "--show-depends", "-a"]
    done = subprocess.run([*words, *MODULES], check=True, capture_output=True, text=True)
    paths = list(dict.fromkeys(w for w in done.stdout.split() if w.endswith(".ko")))
    for path in paths:
        shutil.copy2(path, tree / "lib")
    (tree / "modules").write_text("\n".join(f"/lib/{Path(p).name}" for p in paths))
    (tree / "init").write_text(INIT)
    (tree / "init").chmod(0o755)
    pack = "find . | ./bin/busybox cpio -o -H newc | gzip -1 > ../initrd"
    subprocess.run(["sh", "-ec", pack], cwd=tree, check=True, stderr=subprocess.DEVNULL)
    shutil.rmtree(tree)


def main() -> int:
    if os.geteuid() != 0:
        sys.stdout.write("realnode: NO QEMU MACHINES: it needs root\n")
        return 1
    sys.stdout.write(f"realnode: kernel for QEMU in {make()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
