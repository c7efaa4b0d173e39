"""A browser for the dashboard, and what its tests create in a lab."""

import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from playwright.sync_api import Browser, sync_playwright

from envtest import browser as browsers
from envtest.plugin import need_or_skip
from moxwell.api.core.storage import PersistentVolumeClaim
from moxwell.clock import SystemClock
from moxwell.embedded.controllermanager.resources import DEPLOYMENTS
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from support.lab_instance import Instance

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def open_browser() -> Iterator[Browser]:
    """The installed Chromium; without one the test is skipped."""
    program = browsers.find()
    if program is None:
        need_or_skip("chromium is not installed")
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=str(program), args=FLAGS)
        yield running
        running.close()


def simulate(lab: Instance, method: str, path: str, body: Any = None) -> None:
    """Send a request to the control API of a lab's simulator, such as a fault."""
    url = next(iter(lab.facts()["regions"].values()))[0]
    data = msgspec.json.encode(body) if body is not None else None
    request = urllib.request.Request(f"{url}/sim/{path}", data=data, method=method)
    trust = ssl.create_default_context(cafile=str(lab.state.folder / "simulator" / "ca.pem"))
    with urllib.request.urlopen(request, timeout=60, context=trust):
        pass


def lose(lab: Instance, region: str) -> None:
    """No host of a region answers any more."""
    simulate(lab, "POST", f"{region}/faults", {"kind": "cut-before"})


def restore(lab: Instance, region: str) -> None:
    """All hosts of a region answer again."""
    simulate(lab, "DELETE", f"{region}/faults")


async def create_database(config: str) -> None:
    """A database with a volume, in the tenant."""
    access = kubeconfig.parse(config).access(SystemClock(), {})
    meta = {"name": "data", "namespace": "default"}
    size = {"requests": {"storage": "20Gi"}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": size}
    pod = {
        "containers": [
            {"name": "c", "image": "db", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}
        ],
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    labels = {"app": "db"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    async with KubeTransport(access) as wire:
        kube = Kube(wire)
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": claim,
        }
        await kube.create(body, PersistentVolumeClaim.resource)
        meta = {"name": "db", "namespace": "default"}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
        await kube.create(body, DEPLOYMENTS)
