"""
The driver's view of Kubernetes: the PersistentVolume of a disk, whether to keep it, and events.

In: volume ids. Out: a person's wishes about the volume (its annotations), and a word to that person
on the PersistentVolumeClaim when something is wrong. Everything works without it; then nothing is
kept back and nobody is told. The surprise: the wish to keep a disk is looked up at the very moment
of deletion, because that is the only moment that counts.
"""

from typing import Any

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.runtime.events import Recorder
from moxwell.runtime.reconciler import Note

VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
ATTACHMENTS = Resource(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False
)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
KEEP = (("csi.proxmox.sinextra.dev/lifecycle", "keep"), ("moxwell.dev/keep", "true"))
PVC_NAME, PVC_NAMESPACE = "csi.storage.k8s.io/pvc/name", "csi.storage.k8s.io/pvc/namespace"
ADDRESS = "csi.controller"


class Claims:
    """PersistentVolumes and their claims; without a client, nothing."""

    def __init__(self, kube: Kube | None, clock: Clock, *, driver: str, instance: str) -> None:
        self._kube, self._driver = kube, driver
        self.recorder = Recorder(kube, clock, instance=instance) if kube else None

    async def find_volume(self, handle: str, name: str = "") -> dict[str, Any] | None:
        """The PersistentVolume of a handle; by its usual name first."""
        if self._kube is None:
            return None
        guess = await self._kube.find(VOLUMES, name) if name else None
        if guess is not None and self._is(guess, handle):
            return guess
        listed = await self._kube.list(VOLUMES)
        return next((pv for pv in listed.items if self._is(pv, handle)), None)

    def _is(self, pv: dict[str, Any], handle: str) -> bool:
        csi = pv.get("spec", {}).get("csi") or {}
        return csi.get("volumeHandle") == handle and csi.get("driver") == self._driver

    async def is_kept(self, handle: str, name: str) -> bool:
        """Did a person say that the disk must outlive its volume?"""
        pv = await self.find_volume(handle, name)
        marks = (pv or {}).get("metadata", {}).get("annotations") or {}
        return any(marks.get(key) == value for key, value in KEEP)

    async def tell(self, namespace: str, name: str, error: MoxwellError) -> None:
        """Say on a claim what is wrong."""
        await self.note(namespace, name, Note(error.reason, str(error), "Warning"))

    async def note(self, namespace: str, name: str, note: Note) -> None:
        """Put an event on a claim."""
        if self._kube is None or self.recorder is None or not name:
            return
        claim = await self._kube.find(CLAIMS, name, namespace)
        if claim is not None:
            self.recorder.note(ADDRESS, CLAIMS, claim, note)

    async def tell_of(self, handle: str, name: str, error: MoxwellError) -> None:
        """The same, for the claim that a volume belongs to."""
        pv = await self.find_volume(handle, name)
        ref = (pv or {}).get("spec", {}).get("claimRef") or {}
        await self.tell(ref.get("namespace", ""), ref.get("name", ""), error)
