"""
Nodes: proxmox-cloud-controller-manager and Moxwell initialize nodes and delete lost ones.

Guests exist in the simulated Proxmox; kubelets are Node objects that are written here. All nodes
register at once; later their guests are destroyed and the nodes become NotReady.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from envtest import managers
from envtest.control_plane import ControlPlane, answers
from envtest.process import Failed, Process, free_port, wait_ready
from moxwell.lab.proxmox import chaos
from peers.figures import Run
from peers.programs import IDLE_SECONDS, peer_region_file, region_file, run_moxwell, wait_until
from peers.proxmox import WORLD, Meter, RecordedProxmox

PROGRAMS = ("proxmox-ccm",)
TAINT = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}
FIRST = 1000
NODES = "/api/v1/nodes"
INFO = (
    "machineID", "bootID", "kernelVersion", "osImage", "containerRuntimeVersion",
    "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip


def run_nodes(folder: Path, count: int) -> Iterator[Run]:
    """Run both programs one after the other."""
    for program in ("proxmox-ccm", "moxwell"):
        yield _run(folder / program, program, count)


def _run(folder: Path, program: str, count: int) -> Run:
    run = Run("nodes", program)
    with RecordedProxmox(folder / "sim", WORLD) as proxmox, ControlPlane(folder / "kube") as plane:
        plane.start()
        _add_guests(proxmox, count)
        process = _start(program, plane, proxmox, folder)
        meter = Meter(run, proxmox, process)
        with meter.phase(f"initialize {count} nodes", count):
            for n in range(count):
                _register(plane, n)
            wait_until(lambda: _initialized(plane) == count, "initialized nodes")
        with meter.phase(f"idle for {IDLE_SECONDS:.0f} s", count):
            time.sleep(IDLE_SECONDS)
        with meter.phase(f"delete {count} lost nodes", count):
            _lose(proxmox, plane, count)
            wait_until(lambda: not _nodes(plane), "deletion of the nodes")
        meter.finish()
    return run


def _start(program: str, plane: ControlPlane, proxmox: RecordedProxmox, folder: Path) -> Process:
    if program == "proxmox-ccm":
        return _start_peer(plane, proxmox, folder)
    health = free_port()
    process = run_moxwell(
        plane,
        "operator",
        "--cloud-provider=proxmox",
        f"--config={region_file(proxmox, folder / 'config.yaml')}",
        "--controllers=cloud-node,cloud-node-lifecycle",
        f"--kubeconfig={plane.kubeconfig}",
        "--no-leader-elect",
        f"--health-port={health}",
        "--webhook-port=0",
        "--bind-address=127.0.0.1",
    )
    wait_ready(process, lambda: managers.is_ready(health))
    return process


def _start_peer(plane: ControlPlane, proxmox: RecordedProxmox, folder: Path) -> Process:
    secure = free_port()
    process = plane.start_program(
        "proxmox-ccm",
        f"--cloud-config={peer_region_file(proxmox, folder / 'peer.yaml')}",
        f"--kubeconfig={plane.kubeconfig}",
        f"--authentication-kubeconfig={plane.kubeconfig}",
        f"--authorization-kubeconfig={plane.kubeconfig}",
        "--controllers=cloud-node,cloud-node-lifecycle",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure}",
        f"--cert-dir={folder}",
    )
    wait_ready(process, lambda: answers(secure))
    return process


def _uuid(n: int) -> str:
    return f"10000000-0000-4000-8000-{n:012d}"


def _add_guests(proxmox: RecordedProxmox, count: int) -> None:
    assert proxmox.simulator is not None
    runtime = proxmox.simulator.engine.runtimes["north"]
    for n in range(count):
        args = {"vmid": FIRST + n, "name": f"node-{n}", "node": f"pve{1 + n % 3}"}
        chaos.perform(runtime, "take-vmid", args)
        runtime.region.guests[FIRST + n].conf["smbios1"] = f"uuid={_uuid(n)}"


def _register(plane: ControlPlane, n: int) -> None:
    """Write the node that a kubelet with an external cloud provider registers."""
    notes = {"alpha.kubernetes.io/provided-node-ip": f"10.0.{n // 250}.{n % 250 + 1}"}
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {
        "nodeInfo": {**dict.fromkeys(INFO, ""), "systemUUID": _uuid(n)},
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [_ready("True")],
    }
    meta = {"name": f"node-{n}", "annotations": notes}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
    code, answer = plane.request(
        "POST", NODES, {**body, "spec": {"taints": [TAINT]}, "status": status}
    )
    if code != 201:
        raise Failed(f"node-{n} cannot be created: {answer}")


def _ready(status: str) -> dict[str, str]:
    now = f"{datetime.now(UTC):%FT%TZ}"
    return {
        "type": "Ready",
        "status": status,
        "reason": "Kubelet",
        "message": "",
        "lastTransitionTime": now,
    }


def _nodes(plane: ControlPlane) -> list[dict[str, Any]]:
    return list(plane.request("GET", NODES)[1]["items"])


def _initialized(plane: ControlPlane) -> int:
    return sum(
        bool(node["spec"].get("providerID"))
        and TAINT["key"] not in {t["key"] for t in node["spec"].get("taints", ())}
        for node in _nodes(plane)
    )


def _lose(proxmox: RecordedProxmox, plane: ControlPlane, count: int) -> None:
    """Destroy the guests; their kubelets stop."""
    assert proxmox.simulator is not None
    runtime = proxmox.simulator.engine.runtimes["north"]
    for n in range(count):
        chaos.perform(runtime, "delete-guest", {"vmid": FIRST + n})
    for n in range(count):
        change = {"status": {"conditions": [_ready("Unknown")]}}
        plane.kubectl(
            "patch", "node", f"node-{n}", "--subresource=status", "-p", json.dumps(change)
        )
