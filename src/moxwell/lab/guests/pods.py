"""
Runs the pods that are bound to a simulated node.

A pod starts when its volumes are attached and is removed when it is deleted. A pod with
``restartPolicy: Always`` runs until then; any other succeeds after a few seconds. Containers are
not simulated. An image is assumed to exist unless its name is malformed, or its registry is in a
domain that never exists (RFC 2606): ``ImagePullBackOff``.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import Denied, Missing, Retryable
from moxwell.kube.client import Kube
from moxwell.lab.guests.pod_watch import PodWatch, own_watch, shared_watch
from moxwell.lab.guests.volumes import VolumeManager

PODS = Resource("", "v1", "pods", "Pod")
START_SECONDS = 1.5
FINISH_SECONDS = 5.0
RETRY_SECONDS = 3
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_NO_DOMAIN = (".invalid", ".example", ".test")


def image_problem(image: str) -> str:
    """Why kubelet could not start a container with an image; empty if it could."""
    if not _IMAGE.fullmatch(image):
        return "InvalidImageName"
    registry = image.partition("/")[0].partition(":")[0]
    return "ImagePullBackOff" if registry.endswith(_NO_DOMAIN) else ""


def waiting_status(pod: dict[str, Any], problem: str, now: str) -> dict[str, Any]:
    """The status of a pod whose images cannot be pulled."""
    containers = [
        {
            "name": c["name"],
            "image": c.get("image", ""),
            "imageID": "",
            "ready": False,
            "started": False,
            "restartCount": 0,
            "state": {
                "waiting": {
                    "reason": problem,
                    "message": f'image "{c.get("image", "")}": {problem}',
                }
            },
        }
        for c in pod["spec"].get("containers", ())
    ]
    return {
        "phase": "Pending",
        "startTime": now,
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
            {
                "type": "Ready",
                "status": "False",
                "reason": "ContainersNotReady",
                "lastTransitionTime": now,
            },
        ],
        "containerStatuses": containers,
    }


def running_status(pod: dict[str, Any], now: str, *, ended: bool = False) -> dict[str, Any]:
    """The status of a pod whose containers all run, or all succeeded."""
    state: dict[str, Any] = {"running": {"startedAt": now}}
    if ended:
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
    containers = [
        {
            "name": c["name"],
            "image": c.get("image", ""),
            "imageID": "",
            "containerID": f"containerd://{_digest(pod, c['name'])}",
            "ready": not ended,
            "started": not ended,
            "restartCount": 0,
            "state": state,
        }
        for c in pod["spec"].get("containers", ())
    ]
    address = pod_address(pod)
    ready = "False" if ended else "True"
    kinds = (("Initialized", "True"), ("PodScheduled", "True"), ("ContainersReady", ready))
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": now}
        for kind, status in (*kinds, ("Ready", ready))
    ]
    return {
        "phase": "Succeeded" if ended else "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": pod.get("status", {}).get("startTime") or now,
        "conditions": conditions,
        "containerStatuses": containers,
    }


def pod_address(pod: dict[str, Any]) -> str:
    """A pod address derived from the pod's UID."""
    digest = hashlib.sha256(pod["metadata"]["uid"].encode()).digest()
    return f"10.244.{digest[0]}.{1 + digest[1] % 254}"


def _digest(pod: dict[str, Any], name: str) -> str:
    return hashlib.sha256(f"{pod['metadata']['uid']}/{name}".encode()).hexdigest()


def images(pod: dict[str, Any]) -> list[str]:
    """The images of a pod's containers."""
    return [str(c.get("image", "")) for c in pod["spec"].get("containers", ())]


def is_finite(pod: dict[str, Any]) -> bool:
    """Whether the containers are expected to exit."""
    return str(pod["spec"].get("restartPolicy", "Always")) != "Always"


def is_running(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


class PodRunner:
    """Runs the pods of one node."""

    def __init__(
        self,
        kube: Kube,
        node: str,
        clock: Clock,
        volumes: VolumeManager,
        shared: PodWatch | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Without a ``shared`` watch it watches the pods of its node itself.

        ``on_change`` is called when a pod begins or ends to run.
        """
        self._on_change = on_change
        self._kube, self._node, self._clock, self._volumes = kube, node, clock, volumes
        self._shared = shared
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.pods: dict[str, dict[str, Any]] = {}  # by UID, as last seen

    async def run(self) -> None:
        """Run the pods bound to this node until cancelled."""
        async with asyncio.TaskGroup() as group:

            def deliver(pod: dict[str, Any], deleted: bool) -> None:
                uid = pod["metadata"]["uid"]
                ran = is_running(self.pods.get(uid, {}))
                if deleted:
                    self._volumes.remove_pod(uid)
                    self.pods.pop(uid, None)
                else:
                    self.pods[uid] = pod
                    self._sync_pod(pod, group)
                if ran is not is_running(self.pods.get(uid, {})):
                    self._on_change()

            if self._shared is not None:
                await shared_watch(self._shared, self._node, deliver)
            else:
                await own_watch(self._kube, self._node, self._clock, deliver)

    def _sync_pod(self, pod: dict[str, Any], group: asyncio.TaskGroup) -> None:
        uid, deleting = pod["metadata"]["uid"], "deletionTimestamp" in pod["metadata"]
        wanted = f"{uid}/gone" if deleting else uid
        phase = pod.get("status", {}).get("phase", "Pending")
        if phase == "Running" and not deleting:
            self._volumes.add_pod(pod)
        if wanted in self._tasks or (not deleting and (phase != "Pending" or _waits(pod))):
            return
        action = self._remove(pod) if deleting else self._start(pod)
        task = group.create_task(action)
        self._tasks[wanted] = task
        task.add_done_callback(lambda _: self._tasks.pop(wanted, None))

    async def _start(self, pod: dict[str, Any]) -> None:
        if not await self._volumes.wait_mounted(pod):
            return
        await self._clock.sleep(START_SECONDS)
        problems = map(image_problem, images(pod))
        if problem := next(filter(None, problems), ""):
            await self._write_status(pod, waiting_status(pod, problem, self._now()))
            return  # a change of the pod's image is not simulated
        await self._write_status(pod, running_status(pod, self._now()))
        if is_finite(pod):
            await self._clock.sleep(FINISH_SECONDS)
            await self._write_status(pod, running_status(pod, self._now(), ended=True))

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _write_status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        await self._retry(
            lambda: self._kube.merge(
                PODS, _name(pod), {"status": status}, _namespace(pod), subresource="status"
            )
        )

    async def _remove(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        await self._retry(
            lambda: self._kube.delete(PODS, _name(pod), _namespace(pod), uid=uid, grace=0)
        )

    async def _retry(self, action: Any) -> None:
        while True:
            try:
                await action()
            except (Retryable, Denied):
                await self._clock.sleep(RETRY_SECONDS)
            except Missing:
                return
            else:
                return


def _waits(pod: dict[str, Any]) -> bool:
    """Whether it is known that an image cannot be pulled."""
    states = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("waiting" in (s.get("state") or {}) for s in states)


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _namespace(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["namespace"])
