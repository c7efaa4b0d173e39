"""
Images of a management cluster: those that kubeadm needs, kube-vip and Cluster API.

``python -m realnode.control_plane_images`` makes them, in the cache of envtest. The names are those
for which the built kubeadm asks; kube-proxy is among the images of add-ons.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from envtest import locate
from envtest.table import BY_NAME, KUBERNETES
from realnode import driver_image, images, template
from realnode.images import LocalImage

REVISION = 1
CLUSTER_API = ("cluster-api", "kubeadm-bootstrap", "kubeadm-control-plane", "in-cluster-ipam")
PROGRAMS: Mapping[str, str] = {  # image without tag: path of the program of the same name
    "kube-apiserver": "/usr/local/bin/kube-apiserver",
    "kube-controller-manager": "/usr/local/bin/kube-controller-manager",
    "kube-scheduler": "/usr/local/bin/kube-scheduler",
    "etcd": "/usr/local/bin/etcd",
    "coredns": "/coredns",
    "kube-vip": "/kube-vip",
    **{name: f"/{name}" for name in CLUSTER_API},
}
PAUSE = "pause"
KUBEADM = "usr/local/bin/kubeadm"
# A network namespace has no limit of connections of its own, and kubeadm's configuration of
# kube-proxy is a document that Cluster API cannot express.
WRAPPER = """#!/bin/sh
file=/run/kubeadm/kubeadm.yaml
if [ -e $file ] && ! grep -q KubeProxyConfiguration $file; then
  cat >> $file <<'END'
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0}
END
fi
"""
PLAIN = 'exec /usr/bin/kubeadm "$@"\n'


def folder() -> Path:
    """The layer of a root file system with the archives, made or not."""
    known = " ".join(BY_NAME[name].folder for name in ("kubeadm", *PROGRAMS))
    digest = hashlib.sha256(f"{known} {REVISION}".encode()).hexdigest()
    return locate.cache() / f"control-plane-images-{digest[:12]}"


def image_of(program: str) -> str:
    """The name of the image of a program that kubeadm does not know."""
    return f"{driver_image.REPOSITORY}/{program}:{BY_NAME[program].version}"


def names() -> dict[str, str]:
    """The images by the last part of their name, as kubeadm lists them."""
    words = ["config", "images", "list", "--image-repository", driver_image.REPOSITORY]
    done = subprocess.run(
        [str(locate.program("kubeadm")), *words, "--kubernetes-version", KUBERNETES],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = {line.rpartition("/")[2].partition(":")[0]: line for line in done.stdout.split()}
    others = {name: image_of(name) for name in PROGRAMS if name not in found}
    return found | others


def make() -> Path:
    """Make the layer unless it is there."""
    made = folder()
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".planes-") as scratch:
        tree, known = Path(scratch) / "tree", names()
        archives = tree / "opt/images"
        archives.mkdir(parents=True)
        found = {known[name]: _image(Path(scratch), name, path) for name, path in PROGRAMS.items()}
        images.write_images(archives / "control-plane.tar", found)
        busybox = (template.folder() / "bin/busybox").read_bytes()
        images.write_archive(archives / "pause.tar", busybox, {known[PAUSE]: images.FOREVER})
        wrapper = tree / KUBEADM
        wrapper.parent.mkdir(parents=True)
        last = template.CGROUP_V1[KUBEADM].partition("\n")[2]
        wrapper.write_text(WRAPPER + (last if template.has_cgroup_v1() else PLAIN))
        wrapper.chmod(0o755)
        tree.rename(made)
    return made


def _image(scratch: Path, name: str, path: str) -> LocalImage:
    layer = images.write_program_layer(scratch / f"{name}.tar", locate.program(name), path)
    settings = {"Entrypoint": [path], "Env": ["PATH=/usr/local/bin"]}
    return LocalImage((layer,), settings)


def main() -> int:
    sys.stdout.write(f"realnode: images of a control plane in {make()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
