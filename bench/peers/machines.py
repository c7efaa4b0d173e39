"""
Machines: CAPMOX and Moxwell create and delete a workload cluster under upstream Cluster API.

Each program gets a control plane and a simulated Proxmox of its own, and the same manifest: one
control plane machine and a number of workers, which boot, run kubeadm and join. Then the workers
are deleted by scaling down, and at last the cluster. CAPMOX stops guests; Moxwell shuts them down,
and stops them in a third run.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envtest import control_plane, managers
from envtest.control_plane import ControlPlane
from envtest.process import Process, free_port, wait_ready
from moxwell.testing.two_regions_world import TOKEN, TOKEN_SECRET
from peers.cluster_manifest import cluster_manifest
from peers.figures import Run
from peers.programs import IDLE_SECONDS, region_file, wait_until
from peers.proxmox import WORLD, Meter, RecordedProxmox
from support.operator_process import Operator, apply

PROGRAMS = ("capmox", "cluster-api", "kubeadm-bootstrap", "kubeadm-control-plane")
CAPMOX = managers.Manager(
    "capmox", "src/config", contracts=(("cluster.x-k8s.io/v1beta2", "v1alpha2"),)
)
MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines"
CLUSTER = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters/peers"


def run_machines(folder: Path, workers: int) -> Iterator[Run]:
    """Run both programs one after the other, and Moxwell again without the shutdown of guests."""
    yield _run(folder / "capmox", "capmox", workers)
    yield _run(folder / "moxwell", "moxwell", workers)
    yield _run(folder / "stop", "moxwell", workers, shutdownSeconds=0)


def _run(folder: Path, program: str, workers: int, **fields: int) -> Run:
    shown = ", ".join(f"{name}: {value}" for name, value in fields.items())
    run = Run(f"machines, {shown}" if shown else "machines", program)
    with RecordedProxmox(folder / "sim", WORLD) as proxmox, _kubernetes(folder) as plane:
        process = _start(program, plane, proxmox, folder)
        meter = Meter(run, proxmox, process)
        with meter.phase(f"create {workers + 1} machines", workers + 1):
            apply(plane, cluster_manifest("peers", workers, free_port(), **fields))
            wait_until(lambda: _nodes(plane) == workers + 1, "nodes")
        with meter.phase(f"idle for {IDLE_SECONDS:.0f} s", workers + 1):
            time.sleep(IDLE_SECONDS)
        with meter.phase(f"delete {workers} machines", workers):
            plane.kubectl("scale", "machinedeployment", "peers-workers", "--replicas=0")
            wait_until(lambda: len(_machines(plane)) == 1, "deletion of the workers")
        with meter.phase("delete the cluster", 1):
            plane.kubectl("delete", "cluster", "peers", "--wait=false")
            wait_until(lambda: plane.request("GET", CLUSTER)[0] == 404, "deletion of the cluster")
        meter.finish()
    return run


@contextmanager
def _kubernetes(folder: Path) -> Iterator[ControlPlane]:
    with ControlPlane(folder / "kube") as plane:
        plane.start()
        plane.start_controller_manager()
        control_plane.wait_default_account(plane)
        managers.start(plane, *managers.ALL, managers.CONTROL_PLANE)
        yield plane


def _start(program: str, plane: ControlPlane, proxmox: RecordedProxmox, folder: Path) -> Process:
    if program == "capmox":
        return _start_capmox(plane, proxmox)
    operator = Operator(plane, region_file(proxmox, folder / "config.yaml"))
    operator.install()
    operator.start()
    assert operator.process is not None
    return operator.process


def _start_capmox(plane: ControlPlane, proxmox: RecordedProxmox) -> Process:
    """Start CAPMOX without webhooks: its port is fixed, and one version of its kinds is used."""
    assert proxmox.simulator is not None
    managers.install_definitions(plane, CAPMOX)
    health = free_port()
    process = plane.start_program(
        "capmox",
        "--enable-webhooks=false",
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--diagnostics-address=127.0.0.1:{free_port()}",
        "--insecure-diagnostics",
        env={
            "PROXMOX_URL": proxmox.simulator.url(),
            "PROXMOX_TOKEN": TOKEN,
            "PROXMOX_SECRET": TOKEN_SECRET,
        },
    )
    wait_ready(process, lambda: managers.is_ready(health))
    return process


def _machines(plane: ControlPlane) -> list[dict[str, Any]]:
    status, body = plane.request("GET", MACHINES)
    return list(body["items"]) if status == 200 else []


def _nodes(plane: ControlPlane) -> int:
    return sum("nodeRef" in m.get("status", {}) for m in _machines(plane))
