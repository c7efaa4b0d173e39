"""
A package mirror in the root of a cloud image: what the installation script of a node asks for.

Debian's packages are downloaded once; kubelet and kubeadm are packed from the built programs, as
pkgs.k8s.io has them. Both are signed with a key of their own, which the image trusts. In a real
mirror the distribution signs; nothing else differs for apt.
"""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from envtest import disks, locate
from envtest.table import KUBERNETES
from realnode import units
from support.containerfile import Stage

NEEDED = {"gpg": "gpg", "dpkg-scanpackages": "dpkg-dev"}  # programs and their packages
FOLDER = "srv/mirror"  # in the root of the image
SUITES = {"debian": ("bookworm", "bookworm-updates"), "debian-security": ("bookworm-security",)}
TOOLS = (
    "ca-certificates", "curl", "qemu-guest-agent", "containerd", "conntrack", "ethtool", "iptables",
    "socat", "containernetworking-plugins",
)  # fmt: skip
CONTROL = """Package: {name}
Version: {version}-1.1
Architecture: amd64
Maintainer: nobody <nobody@localhost>
Depends: {depends}
Description: {name} of Kubernetes
"""
DEPENDS = {
    "kubelet": "iptables, iproute2, mount, util-linux, ethtool, conntrack, socat, "
    "containernetworking-plugins",
    "kubeadm": "kubelet",
}


def make(image: Path) -> None:
    """Fill the mirror of an image, and let the image trust it."""
    absent = [package for name, package in NEEDED.items() if shutil.which(name) is None]
    if absent and not disks.install(absent):
        raise SystemExit(f"realnode: {', '.join(absent)} cannot be installed")
    top = image / FOLDER
    with tempfile.TemporaryDirectory(dir=image.parent) as scratch:
        keys = Path(scratch) / "gnupg"
        keys.mkdir(mode=0o700)
        _gpg(keys, "--quick-gen-key", "--passphrase", "", "mirror@localhost", "rsa2048", "sign")
        (top / "debian/pool").mkdir(parents=True)
        _download(image, Path(scratch), top / "debian/pool")
        for archive, suites in SUITES.items():
            for suite in suites:
                _suite(keys, top / archive, suite)
        _kubernetes(keys, top / "kubernetes")
        key = _gpg(keys, "--armor", "--export")
        (top / "kubernetes/Release.key").write_text(key)
        (image / "etc/apt/trusted.gpg.d/mirror.asc").write_text(key)


def _gpg(home: Path, *words: str) -> str:
    command = ["gpg", "--batch", "--yes", "--quiet", "--homedir", str(home), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _download(image: Path, scratch: Path, pool: Path) -> None:
    """Let apt of a copy of the image download what it would install."""
    root = scratch / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", str(image), str(root)], check=True)
    words = f"apt-get update && apt-get install -y --download-only {' '.join(TOOLS)}"
    done = Stage(root).run("/bin/sh", "-c", words, build=True)
    if done.returncode:
        raise SystemExit(f"realnode: packages cannot be downloaded: {done.stderr[-2000:]}")
    for file in (root / "var/cache/apt/archives").glob("*.deb"):
        shutil.move(file, pool)


def _kubernetes(keys: Path, folder: Path) -> None:
    """The packages kubelet and kubeadm, in a repository without suites."""
    folder.mkdir()
    for name in DEPENDS:
        tree = folder / f".{name}"
        files: Mapping[str, str] = units.KUBELET if name == "kubelet" else units.KUBEADM
        for path, text in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        (tree / "usr/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy2(locate.program(name), tree / "usr/bin" / name)
        (tree / "DEBIAN").mkdir()
        version = KUBERNETES.removeprefix("v")
        control = CONTROL.format(name=name, version=version, depends=DEPENDS[name])
        (tree / "DEBIAN/control").write_text(control)
        target = folder / f"{name}_{version}-1.1_amd64.deb"
        pack = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree)]
        subprocess.run([*pack, str(target)], check=True, capture_output=True)
        shutil.rmtree(tree)
    (folder / "Packages").write_text(_packages(folder, "."))
    _release(keys, folder, {"Origin": "kubernetes"}, ["Packages"])


def _suite(keys: Path, archive: Path, suite: str) -> None:
    dist = archive / "dists" / suite
    index = dist / "main/binary-amd64/Packages"
    index.parent.mkdir(parents=True)
    index.write_text(_packages(archive, "pool") if (archive / "pool").exists() else "")
    head = {
        "Origin": "Debian", "Suite": suite, "Codename": suite,
        "Architectures": "amd64", "Components": "main",
    }  # fmt: skip
    _release(keys, dist, head, ["main/binary-amd64/Packages"])


def _packages(folder: Path, pool: str) -> str:
    words = ["dpkg-scanpackages", "--multiversion", pool]
    done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def _release(keys: Path, folder: Path, head: Mapping[str, str], files: list[str]) -> None:
    date = subprocess.run(
        ["date", "-Ru"], check=True, capture_output=True, text=True, env={"LC_ALL": "C"}
    ).stdout.strip()
    lines = [f"{key}: {value}" for key, value in {**head, "Date": date}.items()]
    lines.append("SHA256:")
    for name in files:
        data = (folder / name).read_bytes()
        lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}")
    release = folder / "Release"
    release.write_text("\n".join([*lines, ""]))
    _gpg(keys, "--clearsign", "--output", str(folder / "InRelease"), str(release))
