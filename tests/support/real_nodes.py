"""What the tests with real nodes share: kubectl, manifests, requests to the Proxmox API."""

import json
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from envtest import locate
from envtest.table import KUBERNETES
from realnode import images
from support.lab_inspector import eventually
from support.lab_instance import Instance

HERE = "198.51.100.1"  # this machine, on the bridge of the guests
TOKEN, SECRET = "moxwell@pve!lab", "6c61622d-0000-4000-8000-6d6f7877656c"
NODES = "198.51.100.10-198.51.100.19"
HELLO = f"""
apiVersion: v1
kind: Pod
metadata: {{name: hello}}
spec:
  terminationGracePeriodSeconds: 5
  containers:
    - name: shell
      image: {images.SHELL}
      imagePullPolicy: Never
      command: [sh, -c, "echo hello from a real node; sleep 36000"]
"""
CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: real}
provisioner: csi.moxwell.dev
parameters: {storage: ceph, csi.storage.k8s.io/fstype: xfs}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: real}
driver: csi.moxwell.dev
deletionPolicy: Delete
"""
SNAPSHOT = """
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: first}
spec: {volumeSnapshotClassName: real, source: {persistentVolumeClaimName: data}}
"""


class Cluster:
    """kubectl with one kubeconfig."""

    def __init__(self, config: Path) -> None:
        self.words = [str(locate.program("kubectl")), "--kubeconfig", str(config)]

    def run(self, *args: str, text: str | None = None) -> str:
        done = subprocess.run(
            [*self.words, *args], input=text, capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else f"failed: {done.stderr}"

    def apply(self, text: str) -> bool:
        return not self.run("apply", "-f", "-", text=text).startswith("failed")

    def items(self, kind: str, *args: str) -> list[dict[str, Any]]:
        answer = self.run("get", kind, *args, "-o", "json")
        found: list[dict[str, Any]] = [] if "failed" in answer[:7] else json.loads(answer)["items"]
        return found

    def one(self, kind: str, name: str) -> dict[str, Any]:
        answer = self.run("get", kind, name, "-o", "json")
        found: dict[str, Any] = {} if "failed" in answer[:7] else json.loads(answer)
        return found


def ready(obj: Mapping[str, Any]) -> bool:
    rows = obj.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in rows)


def claim(name: str, size: str, snapshot: str = "") -> str:
    spec: dict[str, Any] = {
        "storageClassName": "real",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    if snapshot:
        source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot}
        spec["dataSource"] = source
    meta = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
    return yaml.safe_dump(meta | {"spec": spec})


def pod_with_claim(name: str, node: str, claim_name: str) -> str:
    """A pod on one node that keeps a claim at ``/data``."""
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  nodeSelector: {{kubernetes.io/hostname: {node}}}
  containers:
    - name: shell
      image: {images.SHELL}
      imagePullPolicy: Never
      command: [sh, -c, "sleep 36000"]
      volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim_name}}}}}]
"""


def proxmox_data(url: str, ca: Path, path: str, *, method: str = "GET") -> Any:
    """What the Proxmox API answers: a list, or the task of a POST."""
    context = ssl.create_default_context(cafile=str(ca))
    header = {"Authorization": f"PVEAPIToken={TOKEN}={SECRET}"}
    ask = urllib.request.Request(f"{url}{path}", headers=header, method=method)
    with urllib.request.urlopen(ask, context=context, timeout=30) as answer:
        return json.loads(answer.read())["data"]


def proxmox_vms(folder: Path) -> list[dict[str, Any]]:
    """The VMs of the simulated Proxmox that are no templates."""
    rows = _asked(folder, "/api2/json/cluster/resources?type=vm")
    return [row for row in rows if not row.get("template")]


def vm_named(folder: Path, name: str) -> dict[str, Any]:
    (found,) = [row for row in proxmox_vms(folder) if row["name"] == name]
    return found


def switch(folder: Path, vm: Mapping[str, Any], action: str) -> None:
    """Switch a VM on or off, as a person in Proxmox does."""
    _asked(folder, f"/api2/json/nodes/{vm['node']}/qemu/{vm['vmid']}/status/{action}", "POST")


def _asked(folder: Path, path: str, method: str = "GET") -> Any:
    url = next(iter(json.loads((folder / "urls.json").read_text()).values()))
    return proxmox_data(url, folder / "ca.pem", path, method=method)


def manifest(replicas: int) -> str:
    """A cluster with genuine nodes."""
    return f"""
apiVersion: v1
kind: Namespace
metadata: {{name: tenant-real}}
---
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {{name: real, namespace: tenant-real}}
spec:
  version: {KUBERNETES}
  network: {{addresses: ["{NODES}"], prefix: 24, gateway: {HERE}}}
  nodeGroups: [{{name: md0, replicas: {replicas}, instanceType: u1.medium}}]
"""


def initialized(node: dict[str, Any]) -> bool:
    """The cloud controllers have set its addresses and removed the taints."""
    types = {a["type"] for a in node["status"].get("addresses", ())}
    return "InternalIP" in types and not node["spec"].get("taints")


def tenant(mine: Instance, tmp_path: Path) -> Cluster | None:
    """The tenant's API once it answers."""
    file = tmp_path / "tenant.conf"
    words = ("cluster", "kubeconfig", "real", "--namespace", "tenant-real", "--file", str(file))
    if mine.run(*words, check=False).returncode:
        return None
    found = Cluster(file)
    return found if "ok" in found.run("get", "--raw", "/readyz") else None


def joined_nodes(cluster: Cluster) -> list[dict[str, Any]]:
    return [n for n in cluster.items("nodes") if ready(n) and initialized(n)]


def guest_groups() -> list[Path]:
    """The cgroups of guests; version 1 has several hierarchies."""
    top = Path("/sys/fs/cgroup")
    return [*top.glob("moxwell-*"), *top.glob("*/moxwell-*")]


def shell(cluster: Cluster, pod: str, command: str) -> str:
    return cluster.run("exec", pod, "--", "sh", "-c", command)


def expand(cluster: Cluster, pod: str, name: str, size: str, seconds: float) -> None:
    """Expand the claim of a pod while it is mounted at ``/data``; sizes are whole GiB."""
    patch = json.dumps({"spec": {"resources": {"requests": {"storage": size}}}})
    cluster.run("patch", "pvc", name, "-p", patch)

    def grown() -> bool:
        return bool(cluster.one("pvc", name)["status"]["capacity"]["storage"] == size)

    eventually(grown, "the claim is expanded", seconds)
    mebibytes = shell(cluster, pod, "df -m /data").split()[-5]
    assert int(mebibytes) > int(size.removesuffix("Gi")) * 950


def registered(cluster: Cluster) -> set[str]:
    """The nodes on which the kubelet accepted the driver."""
    return {
        row["metadata"]["name"]
        for row in cluster.items("csinodes")
        for driver in row["spec"].get("drivers") or ()
        if driver["name"] == "csi.moxwell.dev"
    }


def forwarded(
    cluster: Cluster, pod: str, port: int, scheme: str, path: str, namespace: str = "default"
) -> str:
    """The answer of a server in a pod through ``kubectl port-forward``."""
    words = [*cluster.words, "port-forward", "-n", namespace, f"pod/{pod}", f":{port}"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            local = running.stdout.readline().split(" -> ")[0].rpartition(":")[2]
            url = f"{scheme}://127.0.0.1:{local}{path}"
            used = context if scheme == "https" else None
            with urllib.request.urlopen(url, timeout=60, context=used) as answer:
                return str(answer.read().decode())
        finally:
            running.terminate()
