"""
Clusters as CAPMOX's users write them, under genuine Cluster API, on machines from end to end.

Core, kubeadm bootstrap, kubeadm control plane and IPAM provider are genuine; our operator runs with
the rights of its release. The control plane is a machine too: a guest reads ``kubeadm init`` from
its seed disk and serves the cluster's API on loopback.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from operated import Operator, Simulated, get, story, until, workload

from rig import control_plane, managers
from rig.control_plane import ControlPlane
from rig.plugin import CAPI, KUBERNETES, require
from rig.process import free_port

pytestmark = [
    pytest.mark.genuine,
    pytest.mark.slow,
    pytest.mark.xdist_group("manifests_genuine"),
]
ALPHA2 = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata:
  name: %(name)s
  labels: {cluster.x-k8s.io/cluster-name: %(name)s}
spec:
  clusterNetwork: {pods: {cidrBlocks: ["192.168.0.0/16"]}}
  infrastructureRef:
    {apiGroup: infrastructure.cluster.x-k8s.io, kind: ProxmoxCluster, name: %(name)s}
  controlPlaneRef:
    {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: %(name)s-cp}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha2
kind: ProxmoxCluster
metadata: {name: %(name)s}
spec:
  controlPlaneEndpoint: {host: %(host)s, port: %(port)s}
  ipv4Config: {addresses: ["10.20.0.10-10.20.0.60"], prefix: 24, gateway: 10.20.0.1}
  dnsServers: [10.20.0.2]
  allowedNodes: [pve1, pve2]
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: %(name)s-cp}
spec:
  replicas: 1
  version: v1.34.1
  machineTemplate:
    spec:
      infrastructureRef:
        apiGroup: infrastructure.cluster.x-k8s.io
        kind: ProxmoxMachineTemplate
        name: %(name)s-cp
  kubeadmConfigSpec:
    files:
      - path: /etc/kubernetes/manifests/kube-vip.yaml
        owner: root:root
        content: |
          apiVersion: v1
          kind: Pod
          metadata: {name: kube-vip, namespace: kube-system}
          spec:
            hostNetwork: true
            containers:
              - name: kube-vip
                image: ghcr.io/kube-vip/kube-vip:v0.7.1
                args: [manager]
                env: [{name: address, value: %(host)s}]
      - path: /etc/prepare.sh
        permissions: "0700"
        content: |
          #!/bin/bash
          grep -q "kubeadm init" /etc/kubeadm.sh && sed -i s/admin/super-admin/ /etc/x
    preKubeadmCommands: [/etc/prepare.sh]
    initConfiguration:
      nodeRegistration:
        kubeletExtraArgs:
          - {name: provider-id, value: "proxmox://'{{ ds.meta_data.instance_id }}'"}
    joinConfiguration:
      nodeRegistration:
        kubeletExtraArgs:
          - {name: provider-id, value: "proxmox://'{{ ds.meta_data.instance_id }}'"}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha2
kind: ProxmoxMachineTemplate
metadata: {name: %(name)s-cp}
spec:
  template:
    spec:
      sourceNode: pve1
      templateID: 9000
      format: raw
      full: true
      numSockets: 2
      numCores: 2
      memoryMiB: 4096
      disks: {bootVolume: {disk: scsi0, sizeGb: 20}}
      network: {networkDevices: [{name: net0, bridge: vmbr0, model: virtio}]}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata: {name: %(name)s-workers}
spec:
  clusterName: %(name)s
  replicas: 1
  selector: {matchLabels: {}}
  template:
    metadata: {labels: {node-role.kubernetes.io/node: ""}}
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
metadata: {name: %(name)s-worker}
spec:
  template:
    spec:
      joinConfiguration:
        nodeRegistration:
          kubeletExtraArgs:
            - {name: provider-id, value: "proxmox://'{{ ds.meta_data.instance_id }}'"}
"""


@dataclass
class Stage:
    plane: ControlPlane
    proxmox: Simulated
    operator: Operator

    def apply(self, text: str) -> None:
        done = self.plane.kubectl("apply", "-f", "-", stdin=text, check=False)
        assert done.returncode == 0, done.stderr

    def nodes(self, cluster: str, count: int) -> list[str]:
        """Names of the nodes of all machines, once there are so many."""

        def ask() -> list[str]:
            found = get(self.plane, "machines", "-l", f"cluster.x-k8s.io/cluster-name={cluster}")
            names = [m.get("status", {}).get("nodeRef", {}).get("name") for m in found]
            return [str(n) for n in names] if len(names) == count and all(names) else []

        made: list[str] = until(f"{count} nodes", ask, self.tell)
        return made

    def tell(self) -> str:
        return story(self.plane) + "\n" + self.operator.log[-3000:]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    require(*KUBERNETES, *CAPI, managers.CONTROL_PLANE.name)
    folder = tmp_path_factory.mktemp("manifests")
    with Simulated(folder / "sim") as proxmox, ControlPlane(folder / "kube") as plane:
        plane.start()
        plane.start_controller_manager()
        control_plane.wait_default_account(plane)
        managers.start(plane, *managers.ALL, managers.CONTROL_PLANE)
        config = folder / "config.yaml"
        config.write_text(proxmox.config())
        operator = Operator(plane, config)
        operator.install()
        operator.start()
        yield Stage(plane, proxmox, operator)


def test_a_cluster_of_capmox_with_its_own_control_plane(stage: Stage, tmp_path: Path) -> None:
    stage.apply(ALPHA2 % {"name": "alpha", "host": "127.20.0.1", "port": free_port()})
    names = stage.nodes("alpha", 2)
    config = workload(stage.plane, "alpha", tmp_path)
    assert names
    assert config.exists()
    assert "Forbidden" not in stage.operator.log
