"""
The objects of the autoscaler scenario: what both programs get, and what only Moxwell needs.

Guests read their user data from an ISO, join the API server of the scenario with the token in it
and become nodes. Pods that exclude each other need a node each.
"""

import base64
from collections.abc import Collection
from typing import Any

import yaml

from moxwell.testing.machine_manifests import CLUSTER

PROVIDER = "karpenter.proxmox.sinextra.dev"
SCALED_CLUSTER = "default/c"  # as in ``CLUSTER``
STORAGE = "ceph"
LABELS = {"app": "peers"}
USER_DATA = """#cloud-config
write_files:
  - path: /run/kubeadm/kubeadm-join-config.yaml
    content: |
      apiVersion: kubeadm.k8s.io/v1beta4
      kind: JoinConfiguration
      discovery:
        bootstrapToken:
          apiServerEndpoint: %s
          token: {{ .Kubernetes.BootstrapToken }}
          unsafeSkipCAVerification: true
      nodeRegistration:
        name: {{ .Metadata.Hostname }}
        kubeletExtraArgs:
          - {name: provider-id, value: {{ .Metadata.ProviderID | quote }}}
runcmd:
  - kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml
"""
CONTROL_PLANE_STATUS = {
    "initialization": {"controlPlaneInitialized": True},
    "externalManagedControlPlane": True,
    "ready": True,
    "initialized": True,
    "replicas": 1,
    "readyReplicas": 1,
    "version": "v1.34.1",
}  # of a control plane that runs elsewhere, as its provider would report it
Json = dict[str, Any]


def node_class_objects(endpoint: str) -> list[Json]:
    """The template, node class and node pool; nodes join the API server at ``endpoint``."""
    reference = {"group": PROVIDER, "kind": "ProxmoxNodeClass", "name": "peers"}
    amd64 = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    pool = {
        "template": {"spec": {"nodeClassRef": reference, "requirements": [amd64]}},
        "disruption": {"consolidateAfter": "Never"},
    }
    node_class = {
        "instanceTemplateRef": {"kind": "ProxmoxUnmanagedTemplate", "name": "peers"},
        "bootDevice": {"size": "20G", "storage": STORAGE},
        "metadataOptions": {
            "type": "cdrom",
            "templatesRef": {"name": "peers", "namespace": "kube-system"},
        },
    }
    secret = _object("v1", "Secret", "peers")
    secret["metadata"]["namespace"] = "kube-system"
    return [
        secret | {"stringData": {"user-data": USER_DATA % endpoint}},
        _object(f"{PROVIDER}/v1alpha1", "ProxmoxUnmanagedTemplate", "peers", templateName="ubuntu"),
        _object(f"{PROVIDER}/v1alpha1", "ProxmoxNodeClass", "peers", **node_class),
        _object("karpenter.sh/v1", "NodePool", "peers", **pool),
    ]


def deployment(count: int) -> Json:
    """Pods of which no two run on the same node."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}
    pod = {
        "terminationGracePeriodSeconds": 1,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        },
        "containers": [
            {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }
        ],
    }
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    return _object(
        "apps/v1",
        "Deployment",
        "peers",
        replicas=count,
        selector={"matchLabels": LABELS},
        template=template,
    )


def cluster_objects(
    port: int, regions: Collection[str], *, ca: bytes, ca_key: bytes, kubeconfig: bytes
) -> list[Json]:
    """The Cluster that Moxwell scales, with the zones of these regions, and its Secrets."""
    objects: list[Json] = list(yaml.safe_load_all(CLUSTER % {"port": port}))
    for obj in objects:
        if obj["kind"] == "ProxmoxCluster":
            zones = obj["spec"]["zoneConfig"]
            obj["spec"]["zoneConfig"] = [z for z in zones if z["region"] in regions]
    return [
        _cluster_secret("c-kubeconfig", {"value": kubeconfig}),
        _cluster_secret("c-ca", {"tls.crt": ca, "tls.key": ca_key}),
        *objects,
    ]


def _cluster_secret(name: str, data: dict[str, bytes]) -> Json:
    secret = _object("v1", "Secret", name)
    labels = {"cluster.x-k8s.io/cluster-name": "c"}
    secret["metadata"] |= {"namespace": "default", "labels": labels}
    shown = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return secret | {"type": "cluster.x-k8s.io/secret", "data": shown}


def _object(api: str, kind: str, name: str, **spec: Any) -> Json:
    found: Json = {"apiVersion": api, "kind": kind, "metadata": {"name": name}}
    return found | ({"spec": spec} if spec else {})
