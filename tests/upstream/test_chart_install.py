"""
``helm install`` of the operator's chart on a genuine Kubernetes, and its pods as processes.

The commands are those of docs/howto-install.md. Each program runs as its pod would: command, user,
files and ServiceAccount of the chart. Nothing else has rights, so a right that the chart lacks
shows as an error. What a cluster has and this one lacks: kubelets, and Services (webhooks are
called by URL).
"""

import base64
import hashlib
import json
import os
import re
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from envtest import locate, managers
from envtest.control_plane import ControlPlane
from envtest.plugin import require
from envtest.process import Process, free_port
from moxwell.api import crd, registry
from moxwell.api.karpenter import nodepools
from moxwell.controllers.karpenter.proxmox.instance_record import CLAIM_UID
from moxwell.controllers.karpenter.proxmox.node_bootstrap import TOKEN_LABEL
from support.helm import CHARTS
from support.operator_process import Simulated, apply, until
from support.pod_process import PodProcess, require_namespaces

pytestmark = [pytest.mark.genuine, pytest.mark.slow]
SPACE, NODE, CLUSTER, TENANT = "moxwell-system", "precious", "sample", "tenant-acme"
UUID = "10000000-0000-4000-8000-000000000201"
HOOKS = "moxwell-validating-webhook-configuration"
SIDECARS = ("csi-provisioner", "csi-resizer")  # those that can be built here
WORKLOADS = (
    ("deployment", "moxwell-controller-manager"),
    ("deployment", "moxwell-cloud-controller-manager"),
    ("deployment", "moxwell-csi-controller"),
    ("daemonset", "moxwell-csi-node"),
)
LEASES = {
    "moxwell",
    "cloud-controller-manager-proxmox",
    "csi-moxwell-dev",
    "external-resizer-csi-moxwell-dev",
}
Json = dict[str, Any]
INFO = ("machineID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion")
MORE_INFO = ("kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture")
TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
NODE_OBJECT: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": NODE,
        "annotations": {"alpha.kubernetes.io/provided-node-ip": "10.1.0.77"},
        "labels": {"kubernetes.io/hostname": NODE},
    },
    "spec": {"taints": [TAINT]},
    "status": {"nodeInfo": {**dict.fromkeys((*INFO, *MORE_INFO), ""), "systemUUID": UUID}},
}
TENANT_OBJECT = """
apiVersion: apps.cozystack.io/v1alpha1
kind: Tenant
metadata: {name: acme, namespace: default}
spec: {resourceQuotas: {cpu: "8"}}
"""
CLUSTER_OBJECT = f"""
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {{name: {CLUSTER}, namespace: {TENANT}}}
spec:
  version: v1.34.1
  nodeGroups: [{{name: md0, replicas: 1}}]
"""
BAD = """
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ProxmoxMachineTemplate
metadata: {name: bad, namespace: default}
spec: {template: {spec: {templateID: 9000, virtualMachineID: 100}}}
"""

POOLS = ("kubeadm", "templates")  # how their nodes get their bootstrap data
OWN_CLUSTER = f"""
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {{name: own, namespace: default}}
spec:
  infrastructureRef: {{apiGroup: infrastructure.cluster.x-k8s.io, kind: ProxmoxCluster, name: own}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: ProxmoxCluster
metadata: {{name: own, namespace: default, labels: {{cluster.x-k8s.io/cluster-name: own}}}}
spec:
  controlPlaneEndpoint: {{host: 127.0.0.1, port: 6443}}
  dnsServers: [8.8.8.8]
  zoneConfig:
    - zone: a
      region: north
      ipv4Config: {{addresses: ["10.1.0.10-10.1.0.99"], prefix: 24, gateway: 10.1.0.1}}
---
apiVersion: karpenter.proxmox.sinextra.dev/v1alpha1
kind: ProxmoxUnmanagedTemplate
metadata: {{name: ubuntu}}
spec: {{tags: [k8s-v1.34.1]}}
---
apiVersion: v1
kind: Secret
metadata: {{name: templates, namespace: kube-system}}
stringData:
  user-data: |
    #cloud-config
    runcmd: [join {{{{ .Kubernetes.BootstrapToken }}}}]
---
apiVersion: karpenter.proxmox.sinextra.dev/v1alpha1
kind: ProxmoxNodeClass
metadata: {{name: {POOLS[0]}}}
spec:
  instanceTemplateRef: {{kind: ProxmoxUnmanagedTemplate, name: ubuntu}}
---
apiVersion: karpenter.proxmox.sinextra.dev/v1alpha1
kind: ProxmoxNodeClass
metadata: {{name: {POOLS[1]}}}
spec:
  instanceTemplateRef: {{kind: ProxmoxUnmanagedTemplate, name: ubuntu}}
  metadataOptions: {{type: cdrom, templatesRef: {{name: templates, namespace: kube-system}}}}
"""
POOL_AND_POD = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: {0}}}
spec:
  template:
    spec:
      taints: [{{key: scaled, effect: NoSchedule}}]  # not for the pods of the chart
      requirements: [{{key: kubernetes.io/arch, operator: In, values: [amd64]}}]
      nodeClassRef: {{group: karpenter.proxmox.sinextra.dev, kind: ProxmoxNodeClass, name: {0}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: {0}, namespace: default}}
spec:
  nodeSelector: {{karpenter.sh/nodepool: {0}}}
  tolerations: [{{key: scaled, operator: Exists}}]
  containers: [{{name: a, image: pause, resources: {{requests: {{cpu: "1"}}}}}}]
"""


def documented(verb: str) -> str:
    """The console block of the page that has this ``helm`` command."""
    page = (CHARTS.parent / "docs" / "howto-install.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    (found,) = [block for block in blocks if f"helm {verb} " in block]
    return str(found)


class Installed:
    """The release, its objects and its running programs."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.processes: dict[str, Process] = {}
        (folder / "charts").symlink_to(CHARTS)

    def shell(self, block: str) -> str:
        """Run a block of the page, with genuine kubectl and Helm."""
        programs = [str(locate.folder(name)) for name in ("helm", "kubectl")]
        env = {"PATH": ":".join([*programs, os.environ["PATH"]]), "HOME": str(self.folder)}
        done = subprocess.run(
            ["bash", "-euc", block],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={**env, "KUBECONFIG": str(self.plane.kubeconfig)},
        )
        assert done.returncode == 0, f"{block}{done.stdout}{done.stderr}"
        return done.stdout

    def get(self, kind: str, name: str, space: str = "default") -> Json | None:
        done = self.plane.kubectl("get", kind, name, "-o", "json", "-n", space, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def has(self, kind: str, name: str, space: str = "default") -> None:
        """Wait until the object exists."""
        self.until(f"{kind} {name}", lambda: self.get(kind, name, space))

    def start(self, kind: str, name: str) -> None:
        """Start the containers of a workload that can be had here."""
        workload = self.get(kind, name, SPACE)
        assert workload is not None
        pod = PodProcess(self.plane, workload, NODE)
        for container in (c["name"] for c in pod.spec["containers"]):
            if container in ("manager", "driver"):
                self.processes[f"{name}/{container}"] = pod.start(container)
            elif container in SIDECARS:
                program = locate.program(container)
                self.processes[f"{name}/{container}"] = pod.start(container, program)

    def items(self, kind: str, *more: str) -> list[Json]:
        done = self.plane.kubectl("get", kind, "-o", "json", *more)
        return list(json.loads(done.stdout)["items"])

    def logs(self) -> str:
        return "\n".join(f"{n}:\n{p.tail(30)}" for n, p in self.processes.items())

    def until(self, what: str, ask: Callable[[], Any]) -> Any:
        def checked() -> Any:
            ended = [name for name, process in self.processes.items() if not process.running]
            assert not ended, f"{ended} ended:\n{self.logs()}"
            return ask()

        return until(what, checked, self.logs)

    def complaints(self) -> list[str]:
        """Lines of logs that tell of a missing right or a file system that is not writable."""
        return [
            f"{name}: {line}"
            for name, process in self.processes.items()
            for line in process.log.read_text(errors="replace").splitlines()
            if "forbidden" in line.lower() or "Read-only file system" in line
        ]


def values() -> Json:
    """The page's values, all parts enabled, with ports that nothing on this machine uses."""
    page = (CHARTS.parent / "docs" / "howto-install.md").read_text()
    (given,) = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    loopback = ["--bind-address=127.0.0.1"]
    ports = {"healthPort": free_port(), "webhookPort": free_port()}
    scaling = {"karpenter": True, "scaledCluster": "default/own"}
    return {
        **yaml.safe_load(given),
        "operator": {**ports, **scaling, "extraArgs": loopback},
        "cloud": {"enabled": True, "securePort": free_port(), "extraArgs": loopback},
        "csi": {
            "enabled": True,
            "controller": {"metricsPort": free_port()},
            "node": {"metricsPort": free_port()},
            "storageClasses": [{"name": "proxmox", "storage": "ceph", "default": True}],
        },
    }


def regions(proxmox: Simulated) -> str:
    """The file that ``moxwell init`` writes: certificates are known by their fingerprints."""
    found = yaml.safe_load(proxmox.config())
    for region in found["clusters"]:
        del region["ca_file"]
        url = urlsplit(region["url"])
        text = ssl.get_server_certificate((str(url.hostname), int(url.port or 8006)))
        region["fingerprint"] = hashlib.sha256(ssl.PEM_cert_to_DER_cert(text)).hexdigest()
    return yaml.safe_dump(found)


def point(installed: Installed, port: int) -> None:
    """Lead the webhooks to the process: no Service works here."""
    plane, url = installed.plane, f"https://127.0.0.1:{port}"
    hooks = installed.get("validatingwebhookconfiguration", HOOKS) or {}
    targets = [("validatingwebhookconfiguration", HOOKS, "/validate", f"/webhooks/{n}/clientConfig")
               for n in range(len(hooks["webhooks"]))]  # fmt: skip
    for file in sorted((CHARTS / "moxwell" / "files" / "crds").glob("*.infrastructure.*")):
        targets.append(("crd", file.stem, "/convert", "/spec/conversion/webhook/clientConfig"))
    for kind, name, path, where in targets:
        change = [
            {"op": "remove", "path": f"{where}/service"},
            {"op": "add", "path": f"{where}/url", "value": url + path},
        ]
        plane.kubectl("patch", kind, name, "--type=json", "-p", json.dumps(change))


def bundle(installed: Installed) -> bytes:
    """The CA bundle of the first webhook."""
    hooks = installed.get("validatingwebhookconfiguration", HOOKS) or {}
    return base64.b64decode(hooks["webhooks"][0]["clientConfig"].get("caBundle", ""))


def a_node_is_initialized(installed: Installed) -> None:
    def node() -> Json | None:
        found = installed.get("node", NODE)
        return found if found and found["spec"].get("providerID") else None

    found = installed.until("the provider ID", node)
    assert found["spec"]["providerID"] == "proxmox://north/201"
    assert found["metadata"]["labels"]["topology.kubernetes.io/region"] == "north"


def leases_are_held(installed: Installed) -> None:
    def held() -> bool:
        done = installed.plane.kubectl("get", "leases", "-n", SPACE, "-o", "json")
        leases = json.loads(done.stdout)["items"]
        names = {x["metadata"]["name"] for x in leases if x["spec"].get("holderIdentity")}
        return names >= LEASES

    installed.until(f"leases {sorted(LEASES)}", held)


def a_tenant_has_a_cluster(installed: Installed) -> None:
    """Both controllers of tenancy, the infrastructure controller, and deletion."""
    apply(installed.plane, TENANT_OBJECT)
    installed.has("resourcequota", "tenant-quota", TENANT)
    installed.has("rolebinding", f"{TENANT}-super-admin", TENANT)
    clusters_that_cannot_work_are_refused(installed)
    apply(installed.plane, CLUSTER_OBJECT)
    installed.has("clusters.cluster.x-k8s.io", CLUSTER, TENANT)
    installed.has("kamajicontrolplanes", CLUSTER, TENANT)
    installed.has("machinedeployments", f"{CLUSTER}-md0", TENANT)

    def is_seen() -> bool:
        found = installed.get("proxmoxclusters", CLUSTER, TENANT) or {}
        return "status" in found

    installed.until("the status of the ProxmoxCluster", is_seen)


def clusters_that_cannot_work_are_refused(installed: Installed) -> None:
    """The webhook sees fields that the CRD preserves, the regions, and the quota."""
    groups = "nodeGroups: [{name: md0, replicas: %s}]"
    for spec, said in (
        ("versoin: v1.34.1", "spec.versoin: unknown field (did you mean version?)"),
        ("regions: [nort]", "did you mean north?"),
        ("version: v1.99.0", "has Kubernetes v1.99.0"),
        (groups % 1000, "tenant-acme is exceeded (cpu: 2000 asked, 0 used by others, limit 8"),
    ):
        text = CLUSTER_OBJECT.partition("spec:")[0] + f"spec: {{{spec}}}"
        done = installed.plane.kubectl("create", "-f", "-", stdin=text, check=False)
        assert done.returncode != 0
        assert said in done.stderr


def a_mistake_is_refused(installed: Installed) -> None:
    def refusal() -> str:
        words = ("create", "--dry-run=server", "-f", "-")
        done = installed.plane.kubectl(*words, stdin=BAD, check=False)
        assert done.returncode != 0
        return done.stderr if "denied the request" in done.stderr else ""

    assert "validate.infrastructure.moxwell.dev" in installed.until("a refusal", refusal)


def pods_get_machines(installed: Installed) -> None:
    """Pods that no node can run become NodeClaims and machines, and end with their claims."""
    apply(installed.plane, OWN_CLUSTER)
    for pool in POOLS:
        apply(installed.plane, POOL_AND_POD.format(pool))

    def machines() -> dict[str, str]:
        claims = {c["metadata"]["uid"]: c for c in installed.items("nodeclaims")}
        complete = {m["metadata"]["name"] for m in installed.items("proxmoxmachines")}
        return {
            claims[uid]["metadata"]["labels"]["karpenter.sh/nodepool"]: m["metadata"]["name"]
            for m in installed.items("machines")
            if (uid := m["metadata"]["labels"].get(CLAIM_UID, "")) in claims
            if m["metadata"]["name"] in complete
        }

    found = installed.until("the machines", lambda: len(made := machines()) == len(POOLS) and made)
    assert installed.get("kubeadmconfigs", found["kubeadm"]) is not None
    assert installed.get("secret", found["templates"]) is not None
    assert join_tokens(installed) == 1
    installed.plane.kubectl("delete", "pods", *POOLS, "-n", "default", "--wait=false")
    installed.plane.kubectl("delete", "nodeclaims", "--all", "--wait=false")
    installed.until("the end of the claims", lambda: not machines_left(installed))
    assert join_tokens(installed) == 0


def machines_left(installed: Installed) -> list[str]:
    kinds = ("nodeclaims", "machines", "proxmoxmachines")
    return [o["metadata"]["name"] for kind in kinds for o in installed.items(kind)]


def owner(installed: Installed, crd_name: str) -> str:
    """The Helm release that a CRD belongs to."""
    found = installed.get("crd", crd_name) or {}
    return str(found["metadata"].get("annotations", {}).get("meta.helm.sh/release-name", ""))


def join_tokens(installed: Installed) -> int:
    return len(installed.items("secrets", "-n", "kube-system", "-l", TOKEN_LABEL))


def test_the_chart_is_installed_works_and_is_removed(
    own_genuine: ControlPlane, tmp_path: Path
) -> None:
    require("helm", *SIDECARS)
    require_namespaces()
    with Simulated(tmp_path / "sim") as proxmox:
        proxmox.regions["north"].guests[201].conf["smbios1"] = f"uuid={UUID}"
        upstream = yaml.dump_all(crd.crds(registry.UPSTREAM), Dumper=managers.DUMPER)
        own_genuine.kubectl("apply", "--server-side", "-f", "-", stdin=upstream)
        foreign = yaml.dump_all(crd.crds(nodepools.KINDS), Dumper=managers.DUMPER)
        own_genuine.kubectl("apply", "--server-side", "-f", "-", stdin=foreign)  # of Karpenter
        own_genuine.kubectl("create", "-f", "-", stdin=yaml.safe_dump(NODE_OBJECT))
        own_genuine.start_scheduler()
        installed, given = Installed(own_genuine, tmp_path), values()
        (tmp_path / "moxwell.yaml").write_text(regions(proxmox))
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(given))
        installed.shell(documented("install"))
        installed.start(*WORKLOADS[0])
        made = installed.until("the CA bundle", lambda: bundle(installed))
        installed.shell(documented("upgrade"))
        assert bundle(installed) == made
        point(installed, given["operator"]["webhookPort"])
        for kind, name in WORKLOADS[1:]:
            installed.start(kind, name)
        a_node_is_initialized(installed)
        leases_are_held(installed)
        a_mistake_is_refused(installed)
        a_tenant_has_a_cluster(installed)
        pods_get_machines(installed)
        assert owner(installed, "nodepools.karpenter.sh") == ""
        assert owner(installed, "nodeclaims.karpenter.sh") == "moxwell"
        assert installed.complaints() == []
        for process in installed.processes.values():
            process.stop()
        installed.shell(documented("uninstall"))
        assert [name for kind, name in WORKLOADS if installed.get(kind, name, SPACE)] == []
        assert installed.get("clusterrole", "moxwell-controller-manager") is None
        assert installed.get("crd", "proxmoxmachines.infrastructure.cluster.x-k8s.io") is not None
        assert installed.get("clusters.cluster.x-k8s.io", CLUSTER, TENANT) is not None
