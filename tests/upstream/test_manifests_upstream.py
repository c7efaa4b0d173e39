"""
Clusters as CAPMOX's users write them, under genuine Cluster API, on machines from end to end.

Core, kubeadm bootstrap, kubeadm control plane and IPAM provider are genuine; our operator runs with
the rights of its release. The control plane is a machine too: a guest reads ``kubeadm init`` from
its seed disk and serves the cluster's API on loopback.
"""

import base64
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from envtest import control_plane, locate, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import CAPI, KUBERNETES, require
from envtest.process import free_port
from moxwell.testing.two_regions_world import QUICK
from support.operator_process import Operator, Simulated, apply, get, story, until, workload

pytestmark = [
    pytest.mark.genuine,
    pytest.mark.slow,
    pytest.mark.xdist_group("manifests_genuine"),
]
Json = dict[str, Any]
CLUSTER = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: %(name)s, labels: {cluster.x-k8s.io/cluster-name: %(name)s}}
spec:
  infrastructureRef:
    {apiGroup: infrastructure.cluster.x-k8s.io, kind: ProxmoxCluster, name: %(name)s}
  controlPlaneRef:
    {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: %(name)s-cp}
"""
PLACE = """
---
apiVersion: infrastructure.cluster.x-k8s.io/%(api)s
kind: ProxmoxCluster
metadata: {name: %(name)s}
spec:
  controlPlaneEndpoint: {host: %(host)s, port: %(port)s}
  ipv4Config: {addresses: ["%(net)s.10-%(net)s.60"], prefix: 24, gateway: %(net)s.1}
  dnsServers: [%(net)s.2]
"""
PLANE = """
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: %(name)s-cp}
spec:
  replicas: %(replicas)s
  version: v1.34.1
  machineTemplate:
    spec:
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: ProxmoxMachineTemplate
        name: %(name)s-cp
  kubeadmConfigSpec:
"""
TEMPLATE = """
---
apiVersion: infrastructure.cluster.x-k8s.io/%(api)s
kind: ProxmoxMachineTemplate
metadata: {name: %(name)s-cp}
spec:
  template:
    spec:
      templateID: 9000
      numCores: 2
"""
CAPMOX_TEMPLATE = f"""{TEMPLATE}
      sourceNode: pve1
      format: raw
      full: true
      memoryMiB: 4096
      disks: {{bootVolume: {{disk: scsi0, sizeGb: 20}}}}
"""
ALPHA2 = f"""{CLUSTER}
  clusterNetwork: {{pods: {{cidrBlocks: ["192.168.0.0/16"]}}}}
{PLACE}
  allowedNodes: [pve1, pve2]
{PLANE}
    files:
      - path: /etc/kubernetes/manifests/kube-vip.yaml
        owner: root:root
        content: |
          apiVersion: v1
          kind: Pod
          metadata: {{name: kube-vip, namespace: kube-system}}
          spec:
            hostNetwork: true
            containers:
              - name: kube-vip
                image: ghcr.io/kube-vip/kube-vip:v0.7.1
                args: [manager]
                env: [{{name: address, value: %(host)s}}]
      - path: /etc/prepare.sh
        permissions: "0700"
        content: |
          #!/bin/bash
          grep -q "kubeadm init" /etc/kubeadm.sh && sed -i s/admin/super-admin/ /etc/x
    preKubeadmCommands: [/etc/prepare.sh]
    initConfiguration: &node
      nodeRegistration:
        kubeletExtraArgs:
          - {{name: provider-id, value: "proxmox://'{{{{ ds.meta_data.instance_id }}}}'"}}
    joinConfiguration: *node
{CAPMOX_TEMPLATE}
      numSockets: 2
      network: {{networkDevices: [{{name: net0, bridge: vmbr0, model: virtio}}]}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {{name: %(name)s-workers}}
spec:
  clusterName: %(name)s
  replicas: 1
  selector: {{matchLabels: {{}}}}
  template:
    metadata: {{labels: {{node-role.kubernetes.io/node: ""}}}}
    spec:
      clusterName: %(name)s
      version: v1.34.1
      bootstrap:
        configRef:
          apiGroup: bootstrap.cluster.x-k8s.io
          kind: KubeadmConfigTemplate
          name: %(name)s-worker
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: ProxmoxMachineTemplate
        name: %(name)s-cp
---
apiVersion: bootstrap.cluster.x-k8s.io/v1beta2
kind: KubeadmConfigTemplate
metadata: {{name: %(name)s-worker}}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          kubeletExtraArgs:
            - {{name: provider-id, value: "proxmox://'{{{{ ds.meta_data.instance_id }}}}'"}}
"""
ALPHA1 = f"""
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {{name: %(name)s}}
spec:
  clusterNetwork: {{pods: {{cidrBlocks: ["192.168.0.0/16"]}}}}
  infrastructureRef:
    apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
    kind: ProxmoxCluster
    name: %(name)s
  controlPlaneRef:
    apiVersion: controlplane.cluster.x-k8s.io/v1beta1
    kind: KubeadmControlPlane
    name: %(name)s-cp
{PLACE}
  allowedNodes: [pve1, pve2]
  cloneSpec: {{machineSpec: {{}}, sshAuthorizedKeys: [], virtualIPNetworkInterface: ""}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta1
kind: KubeadmControlPlane
metadata: {{name: %(name)s-cp}}
spec:
  replicas: %(replicas)s
  version: v1.34.1
  machineTemplate:
    infrastructureRef:
      apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
      kind: ProxmoxMachineTemplate
      name: %(name)s-cp
  kubeadmConfigSpec:
    initConfiguration: &node
      nodeRegistration:
        kubeletExtraArgs: {{provider-id: "proxmox://'{{{{ ds.meta_data.instance_id }}}}'"}}
    joinConfiguration: *node
{CAPMOX_TEMPLATE}
      numSockets: 1
      network: {{default: {{bridge: vmbr0, model: virtio}}}}
"""
THREE = f"""{CLUSTER}{PLACE}{PLANE}
    clusterConfiguration:
      etcd:
        external:
          endpoints: ["https://10.22.0.5:2379"]
          caFile: /etc/kubernetes/pki/etcd/ca.crt
          certFile: /etc/kubernetes/pki/apiserver-etcd-client.crt
          keyFile: /etc/kubernetes/pki/apiserver-etcd-client.key
    initConfiguration: &node
      nodeRegistration:
        kubeletExtraArgs:
          - {{name: provider-id, value: "proxmox://'{{{{ ds.meta_data.instance_id }}}}'"}}
          - name: node-labels
            value: "host={{{{ ds.meta_data.proxmox_node }}}},zone={{{{ ds.meta_data.zone }}}}"
    joinConfiguration: *node
{TEMPLATE}
      spread: Require
"""
CLUSTERS: dict[str, tuple[str, Json]] = {
    "alpha": (ALPHA2, {"api": "v1alpha2", "net": "10.20.0", "host": "127.20.0.1", "replicas": 1}),
    "old": (ALPHA1, {"api": "v1alpha1", "net": "10.21.0", "host": "127.20.0.2", "replicas": 1}),
    "three": (THREE, {"api": "v1beta2", "net": "10.22.0", "host": "127.20.0.3", "replicas": 3}),
}


@dataclass
class Stage:
    """Genuine Cluster API with our operator, and three clusters on their way."""

    plane: ControlPlane
    proxmox: Simulated
    operator: Operator
    folder: Path
    ports: dict[str, int] = field(default_factory=dict)

    def apply(self) -> None:
        pair = self.plane.authority.pair
        given = {"tls.crt": _encoded(pair.cert), "tls.key": _encoded(pair.key)}
        for name in ("three-etcd", "three-apiserver-etcd-client"):
            meta = {"name": name, "labels": {"cluster.x-k8s.io/cluster-name": "three"}}
            head = {"apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret"}
            apply(self.plane, yaml.safe_dump({**head, "metadata": meta, "data": given}))
        for name, (text, facts) in CLUSTERS.items():
            self.ports[name] = free_port()
            apply(self.plane, text % {**facts, "name": name, "port": self.ports[name]})

    def of(self, cluster: str, kind: str = "machines") -> list[Json]:
        return get(self.plane, kind, "-l", f"cluster.x-k8s.io/cluster-name={cluster}")

    def nodes(self, cluster: str, count: int) -> list[str]:
        """Names of the nodes of all machines, once there are so many."""

        def ask() -> list[str]:
            names = [m.get("status", {}).get("nodeRef", {}).get("name") for m in self.of(cluster)]
            return [str(n) for n in names] if len(names) == count and all(names) else []

        made: list[str] = until(f"{count} nodes of {cluster}", ask, self.tell)
        return made

    def inside(self, cluster: str, *words: str) -> Json:
        """What the cluster's own API says, asked by genuine kubectl."""
        config = workload(self.plane, cluster, self.folder)
        kubectl = [str(locate.program("kubectl")), "--kubeconfig", str(config)]
        done = subprocess.run(
            [*kubectl, *words, "-o", "json"], capture_output=True, text=True, check=True, timeout=99
        )
        found: Json = yaml.safe_load(done.stdout)
        return found

    def tell(self) -> str:
        return story(self.plane) + "\n" + self.operator.log[-3000:]


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    require(*KUBERNETES, *CAPI, managers.CONTROL_PLANE.name)
    folder = tmp_path_factory.mktemp("manifests")
    north = QUICK[: QUICK.index("  - name: south")].replace("bandwidth: 400M", "bandwidth: 4G")
    with Simulated(folder / "sim", north) as proxmox, ControlPlane(folder / "kube") as plane:
        plane.start()
        plane.start_controller_manager()
        control_plane.wait_default_account(plane)
        managers.start(plane, *managers.ALL, managers.CONTROL_PLANE)
        config = folder / "config.yaml"
        config.write_text(proxmox.config())
        operator = Operator(plane, config)
        operator.install()
        operator.start()
        made = Stage(plane, proxmox, operator, folder)
        made.apply()
        yield made


def conditions(obj: Json) -> dict[str, str]:
    return {c["type"]: c["status"] for c in obj["status"]["conditions"]}


def test_a_cluster_of_capmox_with_its_own_control_plane(stage: Stage) -> None:
    """v1alpha2, kube-vip as a static pod, one control plane, one worker."""
    names = stage.nodes("alpha", 2)
    nodes = stage.inside("alpha", "get", "nodes")["items"]
    assert sorted(n["metadata"]["name"] for n in nodes) == sorted(names)
    known = {m["spec"]["providerID"] for m in stage.of("alpha")}
    assert {n["spec"]["providerID"] for n in nodes} == known
    assert all(p.startswith("proxmox://") for p in known)
    wanted = {"kube-apiserver", "etcd", "kube-vip"}
    until("its static pods", lambda: wanted <= _pods(stage, "alpha"), stage.tell)
    (kcp,) = get(stage.plane, "kubeadmcontrolplane", "alpha-cp")
    assert kcp["status"]["initialization"]["controlPlaneInitialized"] is True
    said = until("its parts are well", lambda: _healthy(stage, "alpha-cp"), stage.tell)
    assert said["EtcdClusterHealthy"] in {"Unknown", "False"}  # etcd is not there to be asked


def _pods(stage: Stage, name: str) -> set[str]:
    pods = stage.inside(name, "get", "pods", "-n", "kube-system")["items"]
    return {p["metadata"]["name"].rpartition(f"-{name}-cp")[0] for p in pods}


def _healthy(stage: Stage, name: str) -> dict[str, str]:
    (kcp,) = get(stage.plane, "kubeadmcontrolplane", name)
    found = conditions(kcp)
    return found if found.get("ControlPlaneComponentsHealthy") == "True" else {}


def test_a_cluster_as_capmox_wrote_it_first(stage: Stage) -> None:
    """v1alpha1, under the v1beta1 words of Cluster API."""
    (name,) = stage.nodes("old", 1)
    assert stage.inside("old", "get", "node", name)["spec"]["providerID"].startswith("proxmox://")
    old = "proxmoxmachines.v1alpha1.infrastructure.cluster.x-k8s.io"
    (machine,) = stage.of("old", old)
    assert machine["spec"]["network"]["default"]["bridge"] == "vmbr0"
    assert machine["status"]["ready"] is True


def test_three_control_planes_where_etcd_is_somebody_elses(stage: Stage) -> None:
    stage.nodes("three", 3)
    nodes = stage.inside("three", "get", "nodes")["items"]
    role = "node-role.kubernetes.io/control-plane"
    assert all(role in n["metadata"]["labels"] for n in nodes)
    assert all(n["spec"]["taints"][0]["key"] == role for n in nodes)
    assert {n["metadata"]["labels"]["host"] for n in nodes} == {"pve1", "pve2", "pve3"}
    assert {n["metadata"]["labels"]["zone"] for n in nodes} == {"default"}


def test_nothing_was_refused_to_the_operator(stage: Stage) -> None:
    stage.nodes("alpha", 2)
    assert "orbidden" not in stage.operator.log
