"""
Run upstream Cluster API on a control plane: core, kubeadm bootstrap and control plane, IPAM.

Installs CRDs and webhooks (which call loopback with the CA of the control plane) and starts the
managers. The manifests come from the modules of the programs; what kustomize would add (labels,
conversion, certificates) is added here. Rate limits and etcd timeouts are short.
"""

import base64
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

from envtest import locate
from envtest.control_plane import ControlPlane
from envtest.process import Process, free_port, wait_ready

CONTRACTS = (("cluster.x-k8s.io/v1beta1", "v1beta1"), ("cluster.x-k8s.io/v1beta2", "v1beta2"))
Object = dict[str, Any]
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # CRDs are long
DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(frozen=True, slots=True)
class Manager:
    """One program of the table: the folder of its manifests, flags, and versions by contract."""

    name: str
    source: str
    health: str = "--health-addr"
    flags: tuple[str, ...] = ()
    contracts: tuple[tuple[str, str], ...] = CONTRACTS


GATES = "--feature-gates=ReconcilerRateLimiting=false"  # it delays an object for a second
TOPOLOGY = "ClusterTopology=true"  # clusters by ClusterClass
IGNITION = "KubeadmBootstrapFormatIgnition=true"  # and Flatcar, where it is supported
CORE = Manager("cluster-api", "src/config", flags=(f"{GATES},{TOPOLOGY}",))
BOOTSTRAP = Manager(
    "kubeadm-bootstrap", "src/bootstrap/kubeadm/config", flags=(f"{GATES},{IGNITION}",)
)
CONTROL_PLANE = Manager(
    "kubeadm-control-plane",
    "src/controlplane/kubeadm/config",
    flags=(
        f"{GATES},{TOPOLOGY},{IGNITION}",
        "--etcd-dial-timeout-duration=2s",
        "--etcd-call-timeout-duration=3s",
    ),
)
IPAM = Manager("in-cluster-ipam", "src/config", health="--health-probe-bind-address")
ALL = (CORE, BOOTSTRAP, IPAM)


def start(plane: ControlPlane, *managers: Manager) -> tuple[Process, ...]:
    """Install and start; returns when every manager is ready."""
    chosen = [(manager, free_port(), free_port()) for manager in managers or ALL]
    install(plane, {manager: f"https://127.0.0.1:{port}" for manager, port, _ in chosen})
    started = tuple(_start(plane, manager, port, health) for manager, port, health in chosen)
    for process, (_, _, health) in zip(started, chosen, strict=True):
        wait_ready(process, partial(is_ready, health))
    return started


def _start(plane: ControlPlane, manager: Manager, port: int, health: int) -> Process:
    folder = plane.folder / f"{manager.name}-webhook"
    serving = plane.authority.server(f"{manager.name}-webhook")
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(serving.cert.read_bytes())
    (folder / "tls.key").write_bytes(serving.key.read_bytes())
    return plane.start_program(
        manager.name,
        f"--kubeconfig={plane.kubeconfig}",
        f"--webhook-port={port}",
        f"--webhook-cert-dir={folder}",
        "--webhook-cert-name=tls.crt",
        "--webhook-key-name=tls.key",
        f"{manager.health}=127.0.0.1:{health}",
        f"--diagnostics-address=127.0.0.1:{free_port()}",
        "--insecure-diagnostics",
        *manager.flags,
        env={"POD_NAMESPACE": "default", "POD_NAME": manager.name, "POD_UID": manager.name},
    )


def install(plane: ControlPlane, urls: Mapping[Manager, str]) -> None:
    """Its CRDs and webhook configurations, which call it by URL."""
    bundle = base64.b64encode(plane.authority.pem).decode()
    found = [obj for manager, url in urls.items() for obj in objects(manager, url, bundle)]
    text = yaml.dump_all(found, Dumper=DUMPER)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")


def install_definitions(plane: ControlPlane, manager: Manager) -> None:
    """Its CRDs without webhooks, for programs that use one version of their kinds."""
    found = [_labelled(obj, manager) for obj in definitions(manager)]
    text = yaml.dump_all(found, Dumper=DUMPER)
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")


def objects(manager: Manager, url: str, bundle: str) -> Iterator[Object]:
    """Its CRDs and webhook configurations, which call the URL."""
    for obj in definitions(manager):
        yield _definition(_labelled(obj, manager), url, bundle)
    for obj in _documents(locate.folder(manager.name) / manager.source / "webhook"):
        if hooked := _hooked(obj, manager, url, bundle):
            yield hooked


def definitions(manager: Manager) -> Iterator[Object]:
    """Its CRDs, from its module."""
    return _documents(locate.folder(manager.name) / manager.source / "crd" / "bases")


def _documents(folder: Path) -> Iterator[Object]:
    for path in sorted(folder.glob("*.yaml")):
        yield from (obj for obj in yaml.load_all(path.read_text(), LOADER) if obj)


def _labelled(obj: Object, manager: Manager) -> Object:
    obj["metadata"]["labels"] = {**obj["metadata"].get("labels", {}), **dict(manager.contracts)}
    return obj


def _definition(obj: Object, url: str, bundle: str) -> Object:
    if len(obj["spec"]["versions"]) > 1:
        client = {"url": f"{url}/convert", "caBundle": bundle}
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client}
        obj["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return obj


def _hooked(obj: Object, manager: Manager, url: str, bundle: str) -> Object | None:
    if not obj.get("kind", "").endswith("WebhookConfiguration"):
        return None
    obj["metadata"]["name"] = f"{manager.name}-{obj['metadata']['name']}"
    for hook in obj["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": url + path, "caBundle": bundle}
    return obj


def is_ready(port: int) -> bool:
    """Whether the manager with this health port reports ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):  # also if it is too slow to answer
        return False
