"""
Simulates ``kubeadm init``, and the part of ``kubeadm join --control-plane`` after the join.

A :class:`~moxwell.lab.guests.control_plane.ControlPlaneServer` serves the API. Bootstrap objects,
tokens, addons and the control plane labels are written through that API with certificates that the
node signs itself. All writes are idempotent.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from moxwell.api.requests import Handler
from moxwell.bootstrap import kubeadm
from moxwell.clock import Clock
from moxwell.errors import Conflict, Missing, Retryable, Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests import control_plane_pki
from moxwell.lab.guests.control_plane import GuestControlPlane, KubeadmInit
from moxwell.lab.guests.join import NodeKubeconfig
from moxwell.lab.guests.kubeadm_addons import addons
from moxwell.lab.guests.kubelet import NODES
from moxwell.lab.guests.userdata import CONTROL_PLANE

Json = dict[str, Any]
Dial = Callable[[ApiAccess], Handler]
TIMEOUT_SECONDS = 120
POLL_SECONDS = 1.0
LABEL_SECONDS = 30.0
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


async def initialize(init: KubeadmInit, dial: Dial, clock: Clock) -> NodeKubeconfig:
    """Write the bootstrap objects and addons, and return the kubeconfig of the first node."""
    plane = init.control_plane
    objects = kubeadm.bootstrap_objects(plane.url, plane.ca, init.cluster, init.kubelet)
    tokens = (kubeadm.token_secret(dict(t)) for t in init.tokens)
    await write_objects(plane, (*objects, *tokens), addons(init), dial, clock)
    access = control_plane_pki.kubelet(plane, init.node_name, clock.now())
    return NodeKubeconfig(init.node_name, access)


async def write_objects(
    plane: GuestControlPlane,
    objects: Sequence[Json],
    created: Sequence[Json],
    dial: Dial,
    clock: Clock,
) -> None:
    """Write objects as the administrator once the API answers; ``created`` are kept if there."""
    kube = Kube(dial(control_plane_pki.administrator(plane, clock.now())), manager="kubeadm")
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return await _write(kube, objects, created)
        except Retryable as error:
            if clock.monotonic() >= deadline:
                raise Unreachable(f"the API at {plane.url} did not come up: {error}") from error
            await clock.sleep(POLL_SECONDS)


async def _write(kube: Kube, objects: Sequence[Json], created: Sequence[Json]) -> None:
    for obj in objects:
        await kube.apply(obj, kubeadm.RESOURCES[obj["kind"]], force=True)
    for obj in created:
        with contextlib.suppress(Conflict):  # exists: an upgrade may have changed it
            await kube.create(obj, kubeadm.RESOURCES[obj["kind"]])


class ControlPlaneLabeler:
    """Keeps the control plane labels on a Node."""

    def __init__(
        self, control_plane: GuestControlPlane, node: str, dial: Dial, clock: Clock
    ) -> None:
        self._node, self._clock = node, clock
        self._kube = Kube(
            dial(control_plane_pki.administrator(control_plane, clock.now())), manager="kubeadm"
        )

    async def run(self) -> None:
        """Label the Node when it exists, and again if it registers again."""
        patch: dict[str, Any] = {"metadata": {"labels": {CONTROL_PLANE: "", EXCLUDED: ""}}}
        interval = POLL_SECONDS
        while True:
            with contextlib.suppress(Retryable, Missing):
                node = await self._kube.get(NODES, self._node)
                if CONTROL_PLANE not in node["metadata"].get("labels", {}):
                    await self._kube.merge(NODES, self._node, patch)
                interval = LABEL_SECONDS
            await self._clock.sleep(interval)
