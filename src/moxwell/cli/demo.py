"""Creates the lab's demo cluster and waits until a cluster is ready."""

import base64
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason as Reason
from moxwell.api.kinds import Resource
from moxwell.cli import connect
from moxwell.cli.output import Progress, count
from moxwell.clock import SystemClock
from moxwell.controllers.karpenter.default_pool import ANNOTATION
from moxwell.errors import Conflict, MoxwellError, Retryable, Unreachable
from moxwell.kube.client import Kube

NAME, NAMESPACE = "demo", "tenant-demo"
SECRETS = Resource("", "v1", "secrets", "Secret")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
# reason of a normal step -> a word; other reasons are shown with their message
PROGRESS: dict[str, str] = {
    Reason.PLACING: "placing",
    Reason.CLONING: "cloning",
    Reason.MIGRATING: "migrating",
    Reason.BOOTSTRAPPING: "writing bootstrap ISOs",
    Reason.CONFIGURING: "configuring",
    Reason.STARTING: "starting",
    Reason.TASK_RUNNING: "running Proxmox tasks",
    Reason.WAITING_FOR_MACHINE: "preparing",
    Reason.WAITING_FOR_CLUSTER: "preparing",
    Reason.WAITING_FOR_CLUSTER_INFRASTRUCTURE: "preparing",
    Reason.WAITING_FOR_BOOTSTRAP_DATA: "preparing",
    Reason.WAITING_FOR_ADDRESSES: "waiting for addresses",
    Reason.WAITING_FOR_BOOTSTRAP: "booting",
    Reason.WAITING_FOR_GUEST: "booting",
    Reason.DELETING: "deleting",
}


class NotReady(Unreachable):
    """The cluster is not ready yet."""

    reason = "NotReadyYet"


async def ensure(instance: str, progress: Progress, *, seconds: int) -> None:
    """Create the demo cluster unless it exists, and wait until it is ready."""
    async with connect.kube(instance) as kube:
        await create_namespace(kube, NAMESPACE)
        if await kube.find(Kubernetes, NAME, NAMESPACE) is None:
            with suppress(Conflict):  # another `moxwell up` created it
                await kube.create(demo_manifest(), Kubernetes.resource)
        await wait_ready(kube, NAME, NAMESPACE, progress, seconds=seconds)


async def kubeconfig(instance: str) -> bytes:
    """The kubeconfig of the demo cluster."""
    async with connect.kube(instance) as kube:
        secret = await kube.get(SECRETS, f"{NAME}-kubeconfig", NAMESPACE)
        return base64.b64decode(secret["data"]["value"])


def demo_manifest() -> dict[str, Any]:
    """The demo cluster: three nodes, and up to three more of the autoscaler."""
    body = manifest(NAME, NAMESPACE, 3)
    body["metadata"]["annotations"] = {ANNOTATION: "3"}
    return body


def manifest(name: str, namespace: str, nodes: int, **spec: Any) -> dict[str, Any]:
    """A ``Kubernetes`` with one node group."""
    resource = Kubernetes.resource
    group = {"name": "md0", "replicas": nodes, "instanceType": "u1.large"}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeGroups": [group], **spec},
    }


async def create_namespace(kube: Kube, name: str) -> bool:
    """Create a namespace unless it exists; returns whether it was created."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    if await kube.find(NAMESPACES, name) is not None:
        return False
    try:
        await kube.create(body, NAMESPACES)
    except Conflict:
        return False
    return True


async def wait_ready(
    kube: Kube, name: str, namespace: str, progress: Progress, *, seconds: int
) -> None:
    """Wait until a cluster is ready; shows what it waits for."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while True:
        try:
            app = await kube.get(Kubernetes, name, namespace)
            waits_for = await describe(kube, app)
        except Retryable as error:
            waits_for, app = str(error), None
        if app is not None and is_ready(app):
            waits_for = await api_problem(kube, app)
            if not waits_for:
                ready = count(app.status.ready_replicas, "node")
                progress.done(f"cluster {name} is ready: {ready}")
                return
        if clock.monotonic() > deadline:
            raise NotReady(
                f"cluster {name} is not ready after {seconds} s ({waits_for}); it continues: "
                "see `moxwell status` or `moxwell doctor`"
            )
        progress.say(f"cluster {name}: {waits_for}")
        await clock.sleep(0.5)


async def api_problem(kube: Kube, app: Kubernetes) -> str:
    """Why its API does not answer; empty if it does. After a restart its status may be old."""
    from moxwell.kube import kubeconfig
    from moxwell.kube.transport import KubeTransport

    try:
        secret = await kube.get(SECRETS, f"{app.name}-kubeconfig", app.namespace)
        text = base64.b64decode(secret["data"]["value"])
        async with KubeTransport(kubeconfig.parse(text).access(SystemClock(), {})) as transport:
            await Kube(transport).version()
    except MoxwellError:
        return "its control plane does not answer yet"
    return ""


def is_ready(app: Kubernetes) -> bool:
    """Whether its condition Ready is true for the current generation."""
    current = app.status.observed_generation >= app.metadata.generation
    return current and any(c.type == "Ready" and c.status == "True" for c in app.status.conditions)


async def describe(kube: Kube, app: Kubernetes) -> str:
    """What a cluster waits for, as one line."""
    labels = {"cluster.x-k8s.io/cluster-name": app.name}
    machines = (await kube.list(Machine, app.namespace, labels=labels)).items
    if not machines:
        return "starting its control plane" if not app.status.version else "control plane is up"
    guests = (await kube.list(ProxmoxMachine, app.namespace, labels=labels)).items
    running = sum(m.status.phase == "Running" for m in machines)
    progress = describe_machines(guests)
    return f"{running} of {len(machines)} nodes" + (f"; {progress}" if progress else "")


def describe_machines(guests: Iterable[ProxmoxMachine]) -> str:
    """What the machines that are not ready do, by region."""
    regions: dict[str, set[str]] = {}
    for guest in guests:
        if text := _progress(guest):
            regions.setdefault(text, set()).add(guest.spec.region or "")
    rows = ((text, " and ".join(sorted(names - {""}))) for text, names in sorted(regions.items()))
    return ", ".join(f"{text} in {names}" if names else text for text, names in rows)


def _progress(guest: ProxmoxMachine) -> str:
    ready = next((c for c in guest.status.conditions if c.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return ""
    return PROGRESS.get(ready.reason) or f"{ready.reason}: {ready.message}".rstrip(": ")
