"""
Autoscaler: karpenter-provider-proxmox launches instances for pods and deletes them.

Pods that exclude each other need a node each. The scenario ends at the launched instance: no
kubelet runs here, so nodes do not register. Then the node claims are deleted.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from envtest import control_plane, locate, managers
from envtest.control_plane import ControlPlane
from envtest.process import Process, free_port, wait_ready
from peers.figures import Run
from peers.programs import IDLE_SECONDS, peer_region_file, wait_until
from peers.proxmox import WORLD, Meter, RecordedProxmox

PROGRAM = "karpenter-proxmox"
GROUP = "karpenter.proxmox.sinextra.dev"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
LABELS = {"app": "peers"}


def run_autoscaler(folder: Path, count: int) -> Iterator[Run]:
    """Run the peer; Moxwell has no controllers for these kinds to compare with."""
    yield _run(folder / PROGRAM, PROGRAM, count)


def _run(folder: Path, program: str, count: int) -> Run:
    run = Run("autoscaler", program)
    with RecordedProxmox(folder / "sim", WORLD) as proxmox, ControlPlane(folder / "kube") as plane:
        plane.start()
        plane.start_controller_manager()
        plane.start_scheduler()
        control_plane.wait_default_account(plane)
        process = _start(plane, proxmox, folder)
        meter = Meter(run, proxmox, process)
        with meter.phase(f"launch {count} instances", count):
            _apply(plane, [*_classes(), _deployment(count)])
            wait_until(lambda: _launched(plane) == count, "launched instances")
        with meter.phase(f"idle for {IDLE_SECONDS:.0f} s", count):
            time.sleep(IDLE_SECONDS)
        with meter.phase(f"delete {count} instances", count):
            plane.kubectl("delete", "deployment", "peers")
            plane.kubectl("delete", "nodeclaims", "--all", "--wait=false")
            wait_until(lambda: not _claims(plane), "deletion of the node claims")
        meter.finish()
    return run


def _start(plane: ControlPlane, proxmox: RecordedProxmox, folder: Path) -> Process:
    crds = sorted((locate.folder(PROGRAM) / "src/pkg/apis/crds").glob("*.yaml"))
    for path in crds:
        plane.kubectl("apply", "--server-side", "-f", str(path))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
    health = free_port()
    process = plane.start_program(
        PROGRAM,
        f"-cloud-config={peer_region_file(proxmox, folder / 'peer.yaml')}",
        f"-health-probe-port={health}",
        f"-metrics-port={free_port()}",
        "-disable-leader-election",
        env={"SYSTEM_NAMESPACE": "kube-system"},
    )
    wait_ready(process, lambda: managers.is_ready(health))
    return process


def _apply(plane: ControlPlane, objects: list[dict[str, Any]]) -> None:
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def _classes() -> list[dict[str, Any]]:
    """The template, node class and node pool that the instances are made of."""
    pool = {
        "template": {
            "spec": {
                "nodeClassRef": {"group": GROUP, "kind": "ProxmoxNodeClass", "name": "peers"},
                "requirements": [
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
                ],
            }
        }
    }
    node_class = {
        "instanceTemplateRef": {"kind": "ProxmoxUnmanagedTemplate", "name": "peers"},
        "bootDevice": {"size": "20G", "storage": "ceph"},
        "metadataOptions": {"type": "none"},
    }
    return [
        _object(f"{GROUP}/v1alpha1", "ProxmoxUnmanagedTemplate", {"templateName": "ubuntu"}),
        _object(f"{GROUP}/v1alpha1", "ProxmoxNodeClass", node_class),
        _object("karpenter.sh/v1", "NodePool", pool),
    ]


def _object(api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "peers"}, "spec": spec}


def _deployment(count: int) -> dict[str, Any]:
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": LABELS}}
    pod = {
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
    spec = {
        "replicas": count,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
    return _object("apps/v1", "Deployment", spec)


def _claims(plane: ControlPlane) -> list[dict[str, Any]]:
    status, body = plane.request("GET", CLAIMS)
    return list(body["items"]) if status == 200 else []


def _launched(plane: ControlPlane) -> int:
    return sum("providerID" in claim.get("status", {}) for claim in _claims(plane))
