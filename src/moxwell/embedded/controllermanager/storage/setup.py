"""Adds the volume controllers and the CSI sidecars to a manager."""

from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.resources import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_SNAPSHOT_CONTENTS,
    VOLUME_SNAPSHOTS,
)
from moxwell.embedded.controllermanager.storage.attachdetach.controller import (
    AttachController,
    DetachController,
)
from moxwell.embedded.controllermanager.storage.attachdetach.plan import needs_volumes
from moxwell.embedded.controllermanager.storage.attacher.controller import ExternalAttacher
from moxwell.embedded.controllermanager.storage.capacity.controller import CapacityController
from moxwell.embedded.controllermanager.storage.ephemeral.controller import (
    EphemeralVolumeController,
)
from moxwell.embedded.controllermanager.storage.ephemeral.plan import has_ephemeral_volumes
from moxwell.embedded.controllermanager.storage.persistentvolume.controller import (
    PersistentVolumeClaimController,
    PersistentVolumeController,
)
from moxwell.embedded.controllermanager.storage.plugin import CSIPlugin
from moxwell.embedded.controllermanager.storage.provisioner.controller import (
    ExternalProvisioner,
    VolumeReclaimer,
)
from moxwell.embedded.controllermanager.storage.resizer.controller import ExternalResizer
from moxwell.embedded.controllermanager.storage.snapshot.controller import (
    SnapshotContentController,
    SnapshotController,
)
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller


def add_binding(runtime: Runtime) -> None:
    """The volume controllers of kube-controller-manager; they serve every driver."""
    kube, caches = runtime.kube, runtime.manager.caches
    claims, volumes = (
        PersistentVolumeClaimController(kube, caches),
        PersistentVolumeController(caches.of(PERSISTENT_VOLUME_CLAIMS)),
    )
    ephemeral, attach = EphemeralVolumeController(kube), AttachController(kube, caches)
    for controller in (
        Controller(name="embedded.persistentvolumeclaim", reconciler=claims, per_shard=1),
        Controller(name="embedded.persistentvolume", reconciler=volumes),
        Controller(
            name="embedded.ephemeralvolume", reconciler=ephemeral, needs=has_ephemeral_volumes
        ),
        Controller(name="embedded.attach", reconciler=attach, needs=needs_volumes),
        Controller(name="embedded.detach", reconciler=DetachController(kube, caches)),
    ):
        runtime.manager.add(controller)


def add_sidecars(runtime: Runtime, clock: Clock, plugin: CSIPlugin) -> None:
    """The sidecars of one driver."""
    kube, manager = runtime.kube, runtime.manager
    caches = manager.caches
    for kind in (VOLUME_SNAPSHOTS, VOLUME_SNAPSHOT_CONTENTS):
        caches.of(kind, optional=True)
    reconcilers: dict[str, Any] = {
        "provisioner": ExternalProvisioner(kube, plugin, caches),
        "reclaimer": VolumeReclaimer(kube, plugin),
        "attacher": ExternalAttacher(kube, plugin, clock),
        "resizer": ExternalResizer(kube, plugin, clock, caches.of(PERSISTENT_VOLUMES)),
        "capacity": CapacityController(kube, plugin, caches),
        "snapshotcontent": SnapshotContentController(kube, plugin, clock),
    }
    for name, reconciler in reconcilers.items():
        manager.add(
            Controller(name=f"embedded.{name}", reconciler=reconciler, needs=reconciler.is_ours)
        )
    snapshots = SnapshotController(kube, plugin, clock)
    manager.add(Controller(name="embedded.snapshot", reconciler=snapshots))
