"""
The node plugin of our CSI driver, as in ``release/csi.yaml``. Pure.

Its controller runs in the daemon. The pod gets the address of the API server, so that it needs no
kube-proxy.
"""

from urllib.parse import urlsplit

from moxwell.embedded.controlplanes.addons.objects import (
    Json,
    account,
    binding,
    daemon,
    field_env,
    host_path,
    role,
)

NAME, DRIVER = "moxwell-csi-node", "csi.moxwell.dev"
PLUGIN = f"/var/lib/kubelet/plugins/{DRIVER}"
ARGUMENTS = [
    "csi",
    "node",
    "--csi-address=unix:///csi/csi.sock",
    f"--kubelet-registration-path={PLUGIN}/csi.sock",
    "--metrics-address=:8081",
]


def csi_node(image: str, url: str) -> tuple[Json, ...]:
    """The account with the right to read its node, and the DaemonSet; tenants have a CSIDriver."""
    return (
        account(NAME),
        role(NAME, ("", ["nodes"], ["get"])),
        binding(NAME, NAME, NAME),
        daemon(NAME, _container(image, url), _volumes()),
    )


def api_env(url: str) -> list[Json]:
    """The API server as nodes reach it, in the variables of clients in a cluster."""
    found = urlsplit(url)
    host, port = found.hostname or "", found.port or 443
    variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
    return [{"name": name, "value": value} for name, value in variables.items()]


def _container(image: str, url: str) -> Json:
    probe = {"httpGet": {"path": "/healthz", "port": "metrics"}, "initialDelaySeconds": 30}
    kubelet = {"name": "kubelet", "mountPath": "/var/lib/kubelet"}
    return {
        "name": "driver",
        "image": image,
        "args": ARGUMENTS,
        "env": [field_env("NODE_NAME", "spec.nodeName"), *api_env(url)],
        "ports": [{"name": "metrics", "containerPort": 8081}],
        "livenessProbe": probe,
        "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}},
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "socket", "mountPath": "/csi"},
            {"name": "registration", "mountPath": "/registration"},
            {**kubelet, "mountPropagation": "Bidirectional"},
            {"name": "dev", "mountPath": "/dev"},
            {"name": "sys", "mountPath": "/sys"},
        ],
    }


def _volumes() -> list[Json]:
    return [
        host_path("socket", PLUGIN, "DirectoryOrCreate"),
        host_path("registration", "/var/lib/kubelet/plugins_registry", "Directory"),
        host_path("kubelet", "/var/lib/kubelet", "Directory"),
        host_path("dev", "/dev", "Directory"),
        host_path("sys", "/sys", "Directory"),
    ]
