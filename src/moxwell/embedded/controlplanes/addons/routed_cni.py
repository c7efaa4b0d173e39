"""
A simple CNI: the reference plugins bridge and host-local, and routes between nodes. Pure.

``moxwell cni`` runs on every node. All nodes must be in one network.
"""

from moxwell.embedded.controlplanes.addons.csi_node import api_env
from moxwell.embedded.controlplanes.addons.objects import (
    Json,
    account,
    binding,
    daemon,
    field_env,
    host_path,
    role,
)

NAME = "moxwell-cni"
FOLDER = "/etc/cni/net.d"


def routed_cni(image: str, url: str, pod_cidr: str) -> tuple[Json, ...]:
    """The account with the right to read nodes, and the DaemonSet."""
    container = {
        "name": "cni",
        "image": image,
        "args": ["cni", f"--cluster-cidr={pod_cidr}", f"--cni-conf-dir={FOLDER}"],
        "env": [field_env("NODE_NAME", "spec.nodeName"), *api_env(url)],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": {"privileged": True, "runAsUser": 0},
        "volumeMounts": [
            {"name": "configuration", "mountPath": FOLDER},
            {"name": "xtables", "mountPath": "/run/xtables.lock"},
        ],
    }
    volumes = [
        host_path("configuration", FOLDER, "DirectoryOrCreate"),
        host_path("xtables", "/run/xtables.lock", "FileOrCreate"),
    ]
    return (
        account(NAME),
        role(NAME, ("", ["nodes"], ["get", "list", "watch"])),
        binding(NAME, NAME, NAME),
        daemon(NAME, container, volumes, hostNetwork=True),
    )
