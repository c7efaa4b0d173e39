"""
Reads PersistentVolumes and records events on PersistentVolumeClaims.

Without a Kubernetes client every method does nothing. The annotation that retains a disk is read at
the time of deletion.
"""

from enum import StrEnum
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
RETAIN_ANNOTATIONS = (("csi.proxmox.sinextra.dev/lifecycle", "keep"), ("moxwell.dev/keep", "true"))
PVC_NAME, PVC_NAMESPACE = "csi.storage.k8s.io/pvc/name", "csi.storage.k8s.io/pvc/namespace"
ADDRESS = "csi.controller"


class VolumeReason(StrEnum):
    """Reasons of events on claims; those of failed calls are the reasons of their errors."""

    RESTORED = "Restored"


class PersistentVolumes:
    """The PersistentVolumes of the driver and the events on their claims."""

    def __init__(self, kube: Kube | None, clock: Clock, *, driver: str, instance: str) -> None:
        self._kube, self._driver = kube, driver
        self.recorder = Recorder(kube, clock, instance=instance) if kube else None

    async def find(self, handle: str, name: str = "") -> dict[str, Any] | None:
        """The PersistentVolume with a volume handle; the usual name is tried first."""
        if self._kube is None:
            return None
        usual = await self._kube.find(VOLUMES, name) if name else None
        if usual is not None and self._matches(usual, handle):
            return usual
        listed = await self._kube.list(VOLUMES)
        return next((pv for pv in listed.items if self._matches(pv, handle)), None)

    def _matches(self, pv: dict[str, Any], handle: str) -> bool:
        csi = pv.get("spec", {}).get("csi") or {}
        return csi.get("volumeHandle") == handle and csi.get("driver") == self._driver

    async def is_retained(self, handle: str, name: str) -> bool:
        """Return whether an annotation says that the disk outlives its PersistentVolume."""
        pv = await self.find(handle, name)
        annotations = (pv or {}).get("metadata", {}).get("annotations") or {}
        return any(annotations.get(key) == value for key, value in RETAIN_ANNOTATIONS)

    async def warn(self, namespace: str, name: str, error: MoxwellError) -> None:
        """Record a warning about an error on a claim."""
        await self.record(namespace, name, Note(error.reason, str(error), "Warning"))

    async def record(self, namespace: str, name: str, event: Note) -> None:
        """Record an event on a claim."""
        if self._kube is None or self.recorder is None or not name:
            return
        claim = await self._kube.find(CLAIMS, name, namespace)
        if claim is not None:
            self.recorder.note(ADDRESS, CLAIMS, claim, event)

    async def warn_for_volume(self, handle: str, name: str, error: MoxwellError) -> None:
        """Record a warning on the claim of a volume."""
        pv = await self.find(handle, name)
        ref = (pv or {}).get("spec", {}).get("claimRef") or {}
        await self.warn(ref.get("namespace", ""), ref.get("name", ""), error)
