"""
The samples of the platform's architecture documents, by genuine kubectl against a live lab.

Method 1 is a ``Kubernetes`` with node groups, as a list and as CozyStack's map. Method 2 writes the
Cluster API objects by hand, in the shape of that document: no bootstrap, a host and a template by
name. Each is made, scaled, upgraded, deleted; nothing may be left.
"""

import json
from collections.abc import Iterator

import pytest

from support.example_cluster import example_cluster
from support.lab_inspector import Json, LabInspector, eventually, is_ready, quick_world
from support.lab_instance import instance

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("samples")]
SPACE, KIND = "tenant-demo", "kuberneteses.apps.cozystack.io"
LIST = """
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata:
  name: tenant-cluster
  namespace: tenant-demo
spec:
  replicas: 3
  nodeGroups:
    - name: worker
      replicas: 3
      # This triggers ProxmoxMachine creation
"""
MAP = """
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {name: mapped, namespace: tenant-demo}
spec:
  version: v1.34
  storageClass: replicated
  nodeGroups:
    md0:
      minReplicas: 1
      maxReplicas: 4
      instanceType: u1.medium
      diskSize: 20Gi
      roles: [ingress-nginx]
      resources: {}
      gpus: []
  controlPlane: {replicas: 2}
  addons: {}
"""
DIRECT = """
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata:
  name: my-cluster
spec:
  infrastructureRef:
    apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
    kind: ProxmoxCluster
    name: my-cluster
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: ProxmoxCluster
metadata:
  name: my-cluster
spec:
  server: %s
  controlPlaneEndpoint:
    host: 10.0.0.100
    port: 6443
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: Machine
metadata:
  name: worker-1
spec:
  clusterName: my-cluster
  infrastructureRef:
    apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
    kind: ProxmoxMachine
    name: worker-1
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: ProxmoxMachine
metadata:
  name: worker-1
spec:
  nodeName: pve
  template: ubuntu-22.04-k8s
  cores: 4
  memory: 8192
  diskSize: 50
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabInspector]:
    folder = tmp_path_factory.mktemp("samples")
    world = quick_world(folder, example_cluster())
    with instance(folder, "samples", "--no-demo", "--world", str(world)) as running:
        made = LabInspector(running, world)
        made.kubectl("create", "namespace", SPACE)
        yield made


def found(lab: LabInspector, name: str) -> Json:
    return next(o for o in lab.objects(KIND, SPACE) if o["metadata"]["name"] == name)


def versions(lab: LabInspector, cluster: str) -> set[str]:
    nodes = lab.objects("nodes", tenant=lab.tenant(cluster, SPACE))
    return {n["status"]["nodeInfo"]["kubeletVersion"] for n in nodes}


def delete(lab: LabInspector, name: str) -> None:
    lab.kubectl("delete", KIND, name, "-n", SPACE, "--timeout=240s")
    eventually(lambda: not lab.left(name, SPACE), f"{name} has left nothing")


def test_method_1_is_made_scaled_upgraded_and_deleted(lab: LabInspector) -> None:
    lab.kubectl("apply", "-f", "-", text=LIST)
    eventually(lambda: is_ready(found(lab, "tenant-cluster")), "the sample is ready")
    lab.settles("tenant-cluster", SPACE, 3)

    fewer = LIST.replace("      replicas: 3", "      replicas: 1")
    lab.kubectl("apply", "-f", "-", text=fewer)
    lab.settles("tenant-cluster", SPACE, 1)
    before = versions(lab, "tenant-cluster")

    change = json.dumps({"spec": {"version": "v1.35.0"}})
    lab.kubectl("patch", KIND, "tenant-cluster", "-n", SPACE, "--type=merge", "-p", change)
    eventually(lambda: versions(lab, "tenant-cluster") == {"v1.35.0"}, "its nodes are new")
    lab.settles("tenant-cluster", SPACE, 1)
    assert before != {"v1.35.0"}
    tenant = lab.tenant("tenant-cluster", SPACE)
    plane = json.loads(lab.kubectl("version", "-o", "json", tenant=tenant))
    assert plane["serverVersion"]["gitVersion"].startswith("v1.35.0")
    delete(lab, "tenant-cluster")


def test_the_map_of_cozystack_grows_by_its_autoscaler(lab: LabInspector) -> None:
    lab.kubectl("apply", "-f", "-", text=MAP)
    eventually(lambda: is_ready(found(lab, "mapped")), "the map is ready")
    lab.settles("mapped", SPACE, 1)
    groups = lab.objects("machinedeployments.cluster.x-k8s.io", SPACE)
    group = next(g for g in groups if g["metadata"]["name"] == "mapped-md0")
    size = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-%s-size"
    notes = group["metadata"]["annotations"]
    assert (notes[size % "min"], notes[size % "max"]) == ("1", "4")
    lab.kubectl("scale", "machinedeployment/mapped-md0", "-n", SPACE, "--replicas=2")
    lab.settles("mapped", SPACE, 2)
    lab.kubectl("apply", "-f", "-", text=MAP)  # the same again does not undo it
    lab.kubectl("annotate", KIND, "mapped", "-n", SPACE, "looked=again")
    lab.settles("mapped", SPACE, 2)
    delete(lab, "mapped")


def test_method_2_makes_the_machine_that_it_describes(lab: LabInspector) -> None:
    url = lab.instance.facts()["regions"]["basement"][0]
    lab.kubectl("apply", "-f", "-", text=DIRECT % url.removeprefix("https://"))

    def guest() -> object:
        return next((g for g in lab.guests("worker-1") if g.running), None)

    made = eventually(guest, "the guest runs")
    assert made.node == "pve"  # type: ignore[attr-defined]
    lab.kubectl("delete", "cluster.cluster.x-k8s.io", "my-cluster", "--timeout=240s")
    eventually(lambda: not lab.guests("worker-1") and not lab.strays(), "the guest is gone")
    eventually(lambda: not lab.left("my-cluster", "default"), "my-cluster has left nothing")
    eventually(lambda: not lab.objects("proxmoxmachines", "default"), "its machine is gone")
