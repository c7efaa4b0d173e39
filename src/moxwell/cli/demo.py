"""The sample tenant cluster of the lab: made if missing, watched until it is ready."""

import base64
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.cozystack import Kubernetes
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Resource
from moxwell.cli import connect
from moxwell.cli.output import Progress
from moxwell.clock import SystemClock
from moxwell.errors import Conflict, MoxwellError, Retryable, Unreachable
from moxwell.kube.client import Kube

NAME, NAMESPACE = "demo", "tenant-demo"
SECRETS = Resource("", "v1", "secrets", "Secret")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
DOING = {  # what goes as it should, in a word; everything else is said with its message
    "Placing": "placing",
    "Cloning": "cloning",
    "Migrating": "migrating",
    "Bootstrapping": "writing seed disks",
    "Configuring": "configuring",
    "Starting": "starting",
    "TaskRunning": "Proxmox is at work",
    "WaitingForMachine": "preparing",
    "WaitingForCluster": "preparing",
    "WaitingForClusterInfrastructure": "preparing",
    "WaitingForBootstrapData": "preparing",
    "WaitingForAddresses": "waiting for addresses",
    "WaitingForBootstrap": "booting",
    "WaitingForGuest": "booting",
    "Deleting": "leaving",
}


class NotReady(Unreachable):
    """The cluster is not ready yet; it may well become so."""

    reason = "NotReadyYet"


async def ensure(instance: str, progress: Progress, *, seconds: int) -> None:
    """Make the sample cluster unless it is there, and wait for it."""
    async with connect.kube(instance) as kube:
        await make_namespace(kube, NAMESPACE)
        if await kube.find(Kubernetes, NAME, NAMESPACE) is None:
            with suppress(Conflict):  # somebody else started at the same moment
                await kube.create(manifest(NAME, NAMESPACE, 3), Kubernetes.resource)
        await wait_ready(kube, NAME, NAMESPACE, progress, seconds=seconds)


def manifest(name: str, namespace: str, nodes: int, **spec: Any) -> dict[str, Any]:
    """A small cluster."""
    resource = Kubernetes.resource
    group = {"name": "md0", "replicas": nodes, "instanceType": "u1.large"}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeGroups": [group], **spec},
    }


async def make_namespace(kube: Kube, name: str) -> None:
    """The namespace, if it is missing."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    if await kube.find(NAMESPACES, name) is None:
        try:
            await kube.create(body, NAMESPACES)
        except Conflict:
            return


async def wait_ready(
    kube: Kube, name: str, namespace: str, progress: Progress, *, seconds: int
) -> None:
    """Wait until a cluster is ready, and say meanwhile what it waits for."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while True:
        try:
            app = await kube.get(Kubernetes, name, namespace)
            said = await describe(kube, app)
        except Retryable as error:
            said, app = str(error), None
        if app is not None and is_ready(app):
            said = await silence(kube, app)
            if not said:
                progress.done(f"cluster {name} is ready: {app.status.ready_replicas} nodes")
                return
        if clock.monotonic() > deadline:
            raise NotReady(
                f"cluster {name} is not ready after {seconds} s ({said}); it goes on without you: "
                "look with `moxwell status` or `moxwell doctor`"
            )
        progress.say(f"cluster {name}: {said}")
        await clock.sleep(0.5)


async def silence(kube: Kube, app: Kubernetes) -> str:
    """Why its API is of no use yet: right after a start, what was ready before is only said."""
    from moxwell.kube import kubeconfig
    from moxwell.kube.transport import HttpTransport

    try:
        secret = await kube.get(SECRETS, f"{app.name}-kubeconfig", app.namespace)
        text = base64.b64decode(secret["data"]["value"])
        async with HttpTransport(kubeconfig.parse(text).access(SystemClock(), {})) as transport:
            await Kube(transport).version()
    except MoxwellError:
        return "its control plane does not answer yet"
    return ""


def is_ready(app: Kubernetes) -> bool:
    """Its own word, about the spec it has now."""
    current = app.status.observed_generation >= app.metadata.generation
    return current and any(c.type == "Ready" and c.status == "True" for c in app.status.conditions)


async def describe(kube: Kube, app: Kubernetes) -> str:
    """What a cluster waits for, in one line."""
    labels = {"cluster.x-k8s.io/cluster-name": app.name}
    machines = (await kube.list(Machine, app.namespace, labels=labels)).items
    if not machines:
        return "starting its control plane" if not app.status.version else "control plane is up"
    guests = (await kube.list(ProxmoxMachine, app.namespace, labels=labels)).items
    up = sum(m.status.phase == "Running" for m in machines)
    doing = in_words(guests)
    return f"{up} of {len(machines)} nodes" + (f"; {doing}" if doing else "")


def in_words(guests: Iterable[ProxmoxMachine]) -> str:
    """What the machines that are not ready do, and where."""
    places: dict[str, set[str]] = {}
    for guest in guests:
        if said := _doing(guest):
            places.setdefault(said, set()).add(guest.spec.region or "")
    rows = ((said, " and ".join(sorted(where - {""}))) for said, where in sorted(places.items()))
    return ", ".join(f"{said} in {where}" if where else said for said, where in rows)


def _doing(guest: ProxmoxMachine) -> str:
    ready = next((c for c in guest.status.conditions if c.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return ""
    return DOING.get(ready.reason) or f"{ready.reason}: {ready.message}".rstrip(": ")
