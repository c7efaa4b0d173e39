"""
``kubeadm init``, and what ``kubeadm join --control-plane`` does beyond an ordinary join.

The API is served by the :class:`~moxwell.lab.guests.control_plane.Host`; everything else is done here through that
API, with certificates the node signs itself: the bootstrap objects, tokens and addons, and the mark
that makes a node a control plane. Repeating any of it changes nothing.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.errors import Conflict, Missing, Retryable, Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import Access
from moxwell.lab.guests import control_plane_pki, kubeadm
from moxwell.lab.guests.control_plane import Init, Plane
from moxwell.lab.guests.join import Membership
from moxwell.lab.guests.kubeadm_addons import addons
from moxwell.lab.guests.kubelet import NODES
from moxwell.lab.guests.userdata import CONTROL_PLANE

Dial = Callable[[Access], Handler]
PATIENCE_SECONDS = 120
POLL_SECONDS = 1.0
MARK_SECONDS = 30.0
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


async def initialise(init: Init, dial: Dial, clock: Clock) -> Membership:
    """Fill the fresh API and join it as its first node."""
    plane = init.plane
    kube = Kube(dial(control_plane_pki.administrator(plane, clock.now())), manager="kubeadm")
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            await _fill(kube, init)
        except Retryable as error:
            if clock.monotonic() >= deadline:
                raise Unreachable(f"the API at {plane.url} did not come up: {error}") from error
            await clock.sleep(POLL_SECONDS)
        else:
            return Membership(
                init.node_name, control_plane_pki.kubelet(plane, init.node_name, clock.now())
            )


async def _fill(kube: Kube, init: Init) -> None:
    plane = init.plane
    wanted = kubeadm.bootstrap_objects(plane.url, plane.ca, init.cluster, init.kubelet)
    secrets = (kubeadm.token_secret(dict(t)) for t in init.tokens)
    for obj in (*wanted, *secrets):
        await kube.apply(obj, kubeadm.RESOURCES[obj["kind"]], force=True)
    for obj in addons(init):
        with contextlib.suppress(Conflict):  # made before: whoever upgrades it owns it now
            await kube.create(obj, kubeadm.RESOURCES[obj["kind"]])


class Marker:
    """Keeps the labels by which everybody knows a control plane node."""

    def __init__(self, plane: Plane, node: str, dial: Dial, clock: Clock) -> None:
        self._node, self._clock = node, clock
        self._kube = Kube(
            dial(control_plane_pki.administrator(plane, clock.now())), manager="kubeadm"
        )

    async def run(self) -> None:
        """Mark the node as soon as it is there, and again should it register anew."""
        change: dict[str, Any] = {"metadata": {"labels": {CONTROL_PLANE: "", EXCLUDED: ""}}}
        pause = POLL_SECONDS
        while True:
            with contextlib.suppress(Retryable, Missing):
                node = await self._kube.get(NODES, self._node)
                if CONTROL_PLANE not in node["metadata"].get("labels", {}):
                    await self._kube.merge(NODES, self._node, change)
                pause = MARK_SECONDS
            await self._clock.sleep(pause)
