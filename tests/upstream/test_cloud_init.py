"""
Genuine cloud-init reads the bootstrap ISOs of the autoscaler's nodes.

It runs in the root file system of a node (Debian with cloud-init, made by ``realnode.template``),
in namespaces of its own and on an overlay, so that nothing of this machine changes. The ISO is
unpacked to a seed folder, because not every kernel can mount ISO 9660. ``kubeadm`` is a script that
records what it is called with; the genuine one runs in ``make real``.
"""

import asyncio
import base64
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from envtest import locate
from moxwell.bootstrap.iso import read_iso
from moxwell.lab.proxmox.state import SimRegion
from moxwell.testing.karpenter_environment import (
    MANIFEST,
    KarpenterEnvironment,
    karpenter_environment,
)
from moxwell.testing.loop import run_virtual
from realnode import template

TREES = sorted(locate.cache().glob(f"node-{template.SUITE}-*/usr/bin/cloud-init"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.genuine,
    pytest.mark.skipif(not TREES, reason="no root file system with cloud-init in the cache"),
    pytest.mark.skipif(bool(template.missing()), reason=template.missing()),
]
ADDRESS = re.compile(r"\b10\.\d+\.\d+\.\d+")
SEED = "var/lib/cloud/seed/nocloud"
SETTINGS = b"datasource_list: [NoCloud, None]\nlocale: false\n"
KUBEADM = '#!/bin/sh\necho "$@" >> /root/kubeadm.log\n'
STAGES = r"""
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/merged"
mount -t proc proc "$2/merged/proc"
mount -t sysfs sysfs "$2/merged/sys"
mount -t tmpfs tmpfs "$2/merged/run"
mount -t tmpfs tmpfs "$2/merged/dev" -o mode=755
for name in null zero random urandom; do
  touch "$2/merged/dev/$name"; mount --bind "/dev/$name" "$2/merged/dev/$name"
done
hostname "$(cat "$2/upper/etc/hostname" 2>/dev/null || echo unconfigured)"  # as systemd does
ip link add eth0 type veth peer name peer0
ip link set eth0 address "$3"
for stage in "init --local" init "modules --mode=config" "modules --mode=final"; do
  chroot "$2/merged" /usr/bin/env -i PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    cloud-init $stage || echo "stage $stage failed"
done
hostname > "$2/merged/root/hostname"
"""
USER_DATA = """#cloud-config
hostname: {{ .Metadata.Hostname }}
users:
  - {name: ops, shell: /bin/sh}
write_files:
  - path: /etc/node.yaml
    content: |
      type: {{ .Metadata.InstanceType }}
      cpus: {{ .Resources.CPU }}
      token: {{ .Kubernetes.BootstrapToken }}
runcmd:
  - kubeadm join {{ .Metadata.ProviderID }}
"""
CDROM = MANIFEST.replace(
    "  instanceTemplateRef: {kind: ProxmoxUnmanagedTemplate, name: ubuntu}",
    """  instanceTemplateRef: {kind: ProxmoxUnmanagedTemplate, name: ubuntu}
  metadataOptions: {type: cdrom, templatesRef: {name: templates, namespace: kube-system}}""",
)
VERSION_1 = """version: 1
config:
{{- range .Interfaces }}
  - type: physical
    name: {{ .Name }}
    mac_address: {{ .MacAddr | lower }}
    subnets:
    {{- range .Address4 }}
      - {type: static, address: {{ . }}}
    {{- end }}
{{- end }}
"""
SECRET = f"""
apiVersion: v1
kind: Secret
metadata: {{name: templates, namespace: kube-system}}
data: {{user-data: {base64.b64encode(USER_DATA.encode()).decode()}}}
"""


def boot(folder: Path, files: dict[str, bytes]) -> Path:
    """Let cloud-init run all its stages with the files of an ISO; returns what it wrote."""
    for name in ("upper", "work", "merged"):
        (folder / name).mkdir()
    upper = folder / "upper"
    given = {f"{SEED}/{name}": data for name, data in files.items()}
    given["etc/cloud/cloud.cfg.d/99-test.cfg"] = SETTINGS
    given["usr/local/sbin/kubeadm"] = KUBEADM.encode()
    for name, data in given.items():
        (upper / name).parent.mkdir(parents=True, exist_ok=True)
        (upper / name).write_bytes(data)
    (upper / "usr/local/sbin/kubeadm").chmod(0o755)
    return booted(folder, mac_of(files))


def booted(folder: Path, mac: str) -> Path:
    """Run the stages on what is there; the disk of the guest keeps what they write."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"]
    tree = TREES[-1].parents[2]
    done = subprocess.run(
        [*unshare, "bash", "-c", STAGES, "boot", str(tree), str(folder), mac],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout, done.stdout + done.stderr
    return folder / "upper"


def mac_of(files: dict[str, bytes]) -> str:
    """The MAC address of the guest's first NIC, by which cloud-init finds it."""
    found = re.search(r"(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}", files["network-config"].decode())
    assert found, files["network-config"]
    return found[0]


def isos(region: SimRegion) -> list[bytes]:
    volumes = [
        volume
        for store in region.storages.values()
        for found in store.volumes.values()
        for volume in found.values()
    ]
    return [v.data for v in volumes if v.content == "iso" and v.data and "bootstrap" in v.name]


async def iso_of_a_launch(env: KarpenterEnvironment) -> dict[str, bytes]:
    claim = await env.claim("one", {"cpu": "1", "memory": "1Gi"})

    async def uploaded() -> list[bytes]:
        await env.provider.launch(claim)
        regions = [runtime.region for runtime in env.stage.engine.runtimes.values()]
        return [data for region in regions for data in isos(region)]

    (data,) = await env.stage.until("the ISO is uploaded", uploaded)
    return read_iso(data)


def made(manifest: str, more: str = "") -> dict[str, bytes]:
    """The files of the ISO of a node that is launched in simulated regions."""
    found: dict[str, bytes] = {}

    async def story() -> None:
        async with karpenter_environment(manifest) as env:
            if more:
                await env.stage.apply(more)
                await asyncio.sleep(60)
            found.update(await iso_of_a_launch(env))

    run_virtual(story())
    return found


def addresses_of(files: dict[str, bytes]) -> set[str]:
    """The node's own addresses and its gateway, as the ISO gives them."""
    found = set(ADDRESS.findall(files["network-config"].decode()))
    assert len(found) >= 2, files["network-config"]
    return found


def network_of(upper: Path) -> str:
    """What cloud-init wrote for the network, in whichever format it chose."""
    written = [*upper.glob("etc/netplan/*.yaml"), *upper.glob("etc/network/interfaces.d/*")]
    return "\n".join(path.read_text() for path in written)


def test_a_node_that_joins_with_kubeadm(tmp_path: Path) -> None:
    files = made(MANIFEST)
    upper = boot(tmp_path, files)
    meta = yaml.safe_load(files["meta-data"])
    assert (upper / "root/hostname").read_text().strip() == meta["local-hostname"]
    assert (upper / "root/kubeadm.log").read_text().startswith("join --config")
    patch = upper / "etc/kubernetes/patches/kubeletconfiguration0+merge.json"
    assert "kubeReserved" in patch.read_text()
    assert (upper / "etc/hostname").read_text().strip() == meta["local-hostname"]
    assert addresses_of(files) <= set(ADDRESS.findall(network_of(upper)))


def test_a_node_boots_again_without_its_iso(tmp_path: Path) -> None:
    files = made(MANIFEST)
    boot(tmp_path, files)
    shutil.rmtree(tmp_path / "upper" / SEED)
    upper = booted(tmp_path, mac_of(files))
    name = yaml.safe_load(files["meta-data"])["local-hostname"]
    assert (upper / "root/hostname").read_text().strip() == name
    assert (upper / "etc/hostname").read_text().strip() == name
    assert (upper / "root/kubeadm.log").read_text().count("join --config") == 1
    assert addresses_of(files) <= set(ADDRESS.findall(network_of(upper)))


def test_a_node_with_templates_of_a_secret(tmp_path: Path) -> None:
    files = made(CDROM, SECRET)
    upper = boot(tmp_path, files)
    asked = yaml.safe_load(files["user-data"])
    node = yaml.safe_load((upper / "etc/node.yaml").read_text())
    assert (node["type"], node["cpus"]) == ("c1.2VCPU-4GB", 2)
    assert len(node["token"]) == 23
    assert (upper / "root/hostname").read_text().strip() == asked["hostname"]
    assert (upper / "root/kubeadm.log").read_text().startswith("join proxmox://")
    assert "ops:" in (upper / "etc/passwd").read_text()
    assert addresses_of(files) <= set(ADDRESS.findall(network_of(upper)))


def test_a_node_whose_template_describes_its_network_in_version_1(tmp_path: Path) -> None:
    template = base64.b64encode(VERSION_1.encode()).decode()
    files = made(CDROM, SECRET.replace("\ndata: {", f"\ndata: {{network-config: {template}, "))
    assert yaml.safe_load(files["network-config"])["version"] == 1
    upper = boot(tmp_path, files)
    own = set(ADDRESS.findall(files["network-config"].decode()))
    assert own
    assert own <= set(ADDRESS.findall(network_of(upper)))
    assert "ops:" in (upper / "etc/passwd").read_text()
