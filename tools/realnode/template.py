"""
The root file system of a node: Debian packages, kubelet and kubeadm, and two local images.

``python -m realnode.template`` makes it once, in the cache of envtest; that needs root, mmdebstrap
and a Debian mirror. It contains what a template in Proxmox contains: nothing of a cluster.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from envtest import disks, locate
from envtest.install import alone
from envtest.table import KUBERNETES
from realnode import images, mirror, units

SUITE, REVISION = "bookworm", 2
PROGRAMS = ("kubelet", "kubeadm")
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "cloud-init", "locales", "iproute2", "ifupdown",
    "netplan.io", "containerd", "runc", "containernetworking-plugins", "iptables", "nftables",
    "kmod", "procps", "ethtool", "socat", "conntrack", "e2fsprogs", "xfsprogs", "util-linux",
    "mount", "ca-certificates", "sudo", "openssh-server", "ebtables", "busybox-static",
    "net-tools",
)  # fmt: skip
IMAGE_PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "cloud-init", "locales", "iproute2", "ifupdown",
    "netplan.io", "kmod", "procps", "e2fsprogs", "util-linux", "mount", "ca-certificates", "sudo",
    "openssh-server", "net-tools",
)  # fmt: skip
# What a container on this machine cannot do, and the network of pods, which no template has.
LIMITS = {
    "usr/local/sbin/modprobe": "#!/bin/sh\nexit 0\n",
    "usr/local/sbin/limit-containerd": """#!/bin/sh
file=/etc/containerd/config.toml
[ -e $file ] || exit 0
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' $file
[ ! -d /sys/fs/cgroup/memory ] || sed -i 's/SystemdCgroup = true/SystemdCgroup = false/' $file
""",
    "etc/systemd/system/containerd.service.d/limits.conf": """[Service]
ExecStartPre=/usr/local/sbin/limit-containerd
""",
}
NETWORK, IMPORT = "etc/cni/net.d/10-bridge.conflist", f"{units.FOLDER}/import-images.service"
FILES = {
    **units.KUBELET,
    **units.KUBEADM,
    IMPORT: """[Unit]
After=containerd.service
Requires=containerd.service
Before=kubelet.service cloud-final.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'for each in /opt/images/*.tar; do ctr -n k8s.io images import "$each"; done'
[Install]
WantedBy=multi-user.target
""",
    "etc/containerd/config.toml": f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
""",
    NETWORK: """{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "ipam": {
    "type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]],
    "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
""",
    "etc/sysctl.d/90-kubernetes.conf": "net.ipv4.ip_forward = 1\n",
    "etc/cloud/cloud.cfg.d/90-node.cfg": "datasource_list: [NoCloud, None]\nlocale: false\n",
}
# kubelet 1.35 and newer refuse cgroup v1 unless two settings allow it.
CGROUP_V1 = {
    "etc/kubernetes/kubelet.conf.d/10-cgroup.conf": """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
""",
    "etc/default/kubelet": "KUBELET_EXTRA_ARGS=--config-dir=/etc/kubernetes/kubelet.conf.d\n",
    "usr/local/bin/kubeadm": """#!/bin/sh
exec /usr/bin/kubeadm "$@" --ignore-preflight-errors=SystemVerification
""",
}


def has_cgroup_v1() -> bool:
    """Whether the controllers of this machine are in cgroup v1."""
    return Path("/sys/fs/cgroup/memory").is_dir()


def folder() -> Path:
    """Where the root file system is, made or not."""
    return locate.cache() / f"node-{SUITE}-{KUBERNETES}-{REVISION}"


def image_folder() -> Path:
    """The root file system of a cloud image: it has cloud-init and no node software."""
    return locate.cache() / f"image-{SUITE}-{KUBERNETES}-{REVISION}"


def missing() -> str:
    """Why the root file system cannot be made or used here; empty if nothing prevents it."""
    if os.geteuid() != 0:
        return "it needs root"
    absent = [p for p in ("unshare", "nsenter", "pivot_root", "ip") if shutil.which(p) is None]
    if absent:
        return f"{', '.join(absent)} are not installed"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "the kernel has no overlayfs"
    return ""


def _install(tree: Path) -> None:
    _write(tree, FILES | (CGROUP_V1 if has_cgroup_v1() else {}))
    for program in PROGRAMS:
        shutil.copy2(locate.program(program), tree / "usr/bin" / program)
    (tree / "opt/images").mkdir()
    images.write_archive(tree / "opt/images/shell.tar", (tree / "bin/busybox").read_bytes())
    (tree / "etc/machine-id").write_text("")
    enabled = ("enable", "kubelet", "import-images"), ("mask", "console-getty", "getty@tty1")
    for words in enabled:
        subprocess.run(["chroot", str(tree), "systemctl", *words], check=True, capture_output=True)


def _install_image(tree: Path) -> None:
    names = (NETWORK, "etc/cloud/cloud.cfg.d/90-node.cfg", IMPORT)
    kept = {name: FILES[name] for name in names} | (CGROUP_V1 if has_cgroup_v1() else {})
    _write(tree, kept | LIMITS)
    (tree / "opt/cni").mkdir()
    (tree / "opt/cni/bin").symlink_to("/usr/lib/cni")
    (tree / "opt/images").mkdir()
    busybox = (folder() / "bin/busybox").read_bytes()
    images.write_archive(tree / "opt/images/shell.tar", busybox)
    (tree / "etc/machine-id").write_text("")
    words = ["chroot", str(tree), "systemctl", "enable", "import-images"]
    subprocess.run(words, check=True, capture_output=True)
    mirror.make(tree)


def _write(tree: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755 if "bin/" in name else 0o644)


def make(made: Path, packages: Sequence[str], install: Callable[[Path], None]) -> Path:
    """Make a root file system unless it is there."""
    with alone(made.parent, made.name):
        return made if made.exists() else _make(made, packages, install)


def _make(made: Path, packages: Sequence[str], install: Callable[[Path], None]) -> Path:
    if shutil.which("mmdebstrap") is None and not disks.install(["mmdebstrap"]):
        raise SystemExit("realnode: mmdebstrap cannot be installed")
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".node-") as scratch:
        tree = Path(scratch) / "tree"
        include = f"--include={','.join(packages)}"
        command = ["nice", "mmdebstrap", "--quiet", "--variant=minbase", include, SUITE, str(tree)]
        subprocess.run(command, check=True)
        install(tree)
        tree.rename(made)
    return made


def main() -> int:
    if why := missing():
        sys.stdout.write(f"realnode: NO REAL NODES ON THIS MACHINE: {why}\n")
        return 1
    made = make(folder(), PACKAGES, _install), make(image_folder(), IMAGE_PACKAGES, _install_image)
    sys.stdout.write(f"realnode: root file systems {', '.join(map(str, made))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
