"""
Autoscaler: karpenter-provider-proxmox and Moxwell launch nodes for pods and delete them.

Each program gets a control plane and a simulated Proxmox of its own, and the same node class, whose
guests read an ISO, join and run the pods. First a few nodes are launched, then twice as many at
once. Moxwell also gets upstream Cluster API and the Cluster object that it scales. At last Moxwell
takes over nodes that the peer has launched.
"""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from envtest import control_plane, locate, managers
from envtest.control_plane import ControlPlane
from envtest.process import Process, free_port, wait_ready
from moxwell.api import registry
from moxwell.lab.proxmox.state import SimRegion
from peers import scaled_cluster
from peers.figures import Run
from peers.programs import IDLE_SECONDS, peer_region_file, region_file, run_moxwell, wait_until
from peers.proxmox import WORLD, Meter, RecordedProxmox
from support.genuine_stage import bootstrap_objects

PROGRAM = "karpenter-proxmox"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
PODS = "/api/v1/namespaces/default/pods"
NODES, SECRETS = "/api/v1/nodes", "/api/v1/namespaces/kube-system/secrets"
MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADOPT_TAG = "moxwell-adopt.default.c"
TOKEN_TYPE = "bootstrap.kubernetes.io/token"
OWN_KINDS = ("proxmox", "kamajicontrolplanes")  # Cluster API's come from its own modules
Json = dict[str, Any]


def run_autoscaler(folder: Path, count: int) -> Iterator[Run]:
    """Run both programs one after the other, and Moxwell again on nodes of the peer."""
    for program in (PROGRAM, "moxwell"):
        yield _run(folder / program, program, count)
    yield _take_over(folder / "taken-over", count)


def _run(folder: Path, program: str, count: int) -> Run:
    run = Run("autoscaler", program)
    with RecordedProxmox(folder / "sim", WORLD) as proxmox, ControlPlane(folder / "kube") as plane:
        _start_kubernetes(plane)
        process = (_start_peer if program == PROGRAM else _start)(plane, proxmox, folder)
        meter = Meter(run, proxmox, process)
        _apply(plane, scaled_cluster.node_class_objects(f"127.0.0.1:{plane.port}"))
        _measure(plane, proxmox, meter, count)
        with meter.phase(f"idle for {IDLE_SECONDS:.0f} s", count):
            time.sleep(IDLE_SECONDS)
        _delete(plane, meter, count)
        _measure(plane, proxmox, meter, 2 * count)
        _delete(plane, meter, 2 * count)
        meter.finish()
        run.leftovers += left_in_kubernetes(_items(plane, NODES), _items(plane, SECRETS))
    return run


def _take_over(folder: Path, count: int) -> Run:
    """The peer launches nodes and ends; the operator's tag lets Moxwell adopt their guests."""
    run = Run("autoscaler, taken over", "moxwell")
    with RecordedProxmox(folder / "sim", WORLD) as proxmox, ControlPlane(folder / "kube") as plane:
        _start_kubernetes(plane)
        before = proxmox.contents()
        peer = _start_peer(plane, proxmox, folder)
        _apply(plane, scaled_cluster.node_class_objects(f"127.0.0.1:{plane.port}"))
        _apply(plane, [scaled_cluster.deployment(count)])
        wait_until(lambda: running(_items(plane, PODS)) == count, "running pods")
        wait_until(lambda: not isos(proxmox.contents() - before), "deletion of the ISOs")
        claims = _items(plane, CLAIMS)
        peer.stop()
        meter = Meter(run, proxmox, _start(plane, proxmox, folder), before=before)
        with meter.phase(f"adopt {count} nodes", count):
            let_adopt(proxmox.regions, claims)
            wait_until(lambda: adopted(_items(plane, MACHINES)) == count, "adopted guests")
        with meter.phase(f"idle for {IDLE_SECONDS:.0f} s", count):
            time.sleep(IDLE_SECONDS)
        run.lost = tuple(sorted(uids(claims) - uids(_items(plane, CLAIMS))))
        _delete(plane, meter, count)
        meter.finish()
        run.leftovers += left_in_kubernetes(_items(plane, NODES), _items(plane, SECRETS))
    return run


def uids(objects: Iterable[Json]) -> frozenset[str]:
    return frozenset(obj["metadata"]["uid"] for obj in objects)


def let_adopt(regions: Mapping[str, SimRegion], claims: Iterable[Json]) -> None:
    """Set the operator's tag on the guests of node claims, as an operator does in Proxmox."""
    for claim in claims:
        region, _, vmid = claim["status"]["providerID"].removeprefix("proxmox://").partition("/")
        conf = regions[region].guests[int(vmid)].conf
        conf["tags"] = f"{conf.get('tags', '')};{ADOPT_TAG}".strip(";")


def adopted(machines: Iterable[Json]) -> int:
    """The number of Machines whose node is known."""
    return sum("nodeRef" in machine.get("status", {}) for machine in machines)


def _measure(plane: ControlPlane, proxmox: RecordedProxmox, meter: Meter, count: int) -> None:
    """Launch nodes for new pods, until the pods run and the ISOs are deleted."""
    before = proxmox.contents()
    with meter.phase(f"launch {count} nodes", count):
        _apply(plane, [scaled_cluster.deployment(count)])
        wait_until(lambda: initialized(_items(plane, CLAIMS)) == count, "initialized nodes")
        wait_until(lambda: running(_items(plane, PODS)) == count, "running pods")
        wait_until(lambda: not isos(proxmox.contents() - before), "deletion of the ISOs")


def _delete(plane: ControlPlane, meter: Meter, count: int) -> None:
    plane.kubectl("delete", "deployment", "peers")
    wait_until(lambda: not _items(plane, PODS), "deletion of the pods")
    with meter.phase(f"delete {count} nodes", count):
        plane.kubectl("delete", "nodeclaims", "--all", "--wait=false")
        wait_until(lambda: not _items(plane, CLAIMS), "deletion of the node claims")


def initialized(claims: Iterable[Json]) -> int:
    """The number of node claims whose node has joined and is ready."""
    found = (claim.get("status", {}).get("conditions") or () for claim in claims)
    return sum(any(is_true(c, "Initialized") for c in conditions) for conditions in found)


def is_true(condition: Json, kind: str) -> bool:
    return (condition["type"], condition["status"]) == (kind, "True")


def running(pods: Iterable[Json]) -> int:
    return sum(pod.get("status", {}).get("phase") == "Running" for pod in pods)


def isos(contents: Iterable[str]) -> list[str]:
    """The ISO images among the contents of a region."""
    return sorted(text for text in contents if text.endswith(".iso"))


def left_in_kubernetes(nodes: Iterable[Json], secrets: Iterable[Json]) -> tuple[str, ...]:
    """Nodes and join tokens that exist after their node claims."""
    tokens = (s for s in secrets if s.get("type") == TOKEN_TYPE)
    found = [f"node {node['metadata']['name']}" for node in nodes]
    return (*found, *(f"join token {secret['metadata']['name']}" for secret in tokens))


def _start_kubernetes(plane: ControlPlane) -> None:
    plane.start("--enable-bootstrap-token-auth=true")
    plane.start_controller_manager()
    plane.start_scheduler()
    control_plane.wait_default_account(plane)
    plane.kubectl("apply", "-f", "-", stdin=bootstrap_objects(plane))


def _start_peer(plane: ControlPlane, proxmox: RecordedProxmox, folder: Path) -> Process:
    crds = sorted((locate.folder(PROGRAM) / "src/pkg/apis/crds").glob("*.yaml"))
    _serve(plane, [yaml.safe_load(path.read_text()) for path in crds])
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


def _start(plane: ControlPlane, proxmox: RecordedProxmox, folder: Path) -> Process:
    managers.start(plane)
    status, installed = plane.request("GET", CRDS)
    assert status == 200, installed
    _serve(plane, own_definitions({crd["metadata"]["name"] for crd in installed["items"]}))
    _add_cluster(plane, proxmox)
    health = free_port()
    process = run_moxwell(
        plane,
        "operator",
        f"--config={region_file(proxmox, folder / 'config.yaml')}",
        "--controllers=infra,karpenter",
        f"--scaled-cluster={scaled_cluster.SCALED_CLUSTER}",
        f"--kubeconfig={plane.kubeconfig}",
        "--no-leader-elect",
        f"--health-port={health}",
        "--webhook-port=0",
        "--bind-address=127.0.0.1",
    )
    wait_ready(process, lambda: managers.is_ready(health))
    return process


def own_definitions(installed: Collection[str] = ()) -> list[Json]:
    """The CRDs of Moxwell, Karpenter and Kamaji that are missing, as the chart installs them."""
    ours = (c for c in registry.make_crds() if c["metadata"]["name"].startswith(OWN_KINDS))
    found = {c["metadata"]["name"]: c for c in (*ours, *registry.make_karpenter_crds())}
    return [crd for name, crd in found.items() if name not in installed]


def _add_cluster(plane: ControlPlane, proxmox: RecordedProxmox) -> None:
    pair = plane.authority.pair
    objects = scaled_cluster.cluster_objects(
        plane.port,
        proxmox.regions,
        ca=pair.cert.read_bytes(),
        ca_key=pair.key.read_bytes(),
        kubeconfig=plane.kubeconfig.read_bytes(),
    )
    _apply(plane, objects)
    change = json.dumps({"status": scaled_cluster.CONTROL_PLANE_STATUS})
    plane.kubectl(
        "patch", "kamajicontrolplane", "c", "--type=merge", "--subresource=status", "-p", change
    )


def _serve(plane: ControlPlane, crds: list[Json]) -> None:
    text = yaml.dump_all(crds, Dumper=managers.DUMPER)
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")


def _apply(plane: ControlPlane, objects: list[Json]) -> None:
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def _items(plane: ControlPlane, path: str) -> list[Json]:
    status, body = plane.request("GET", path)
    return list(body["items"]) if status == 200 else []
