"""The storage stand-ins put together: the one function that ``app`` and tests call."""

from moxwell.clock import Clock
from moxwell.embedded.controllermanager.resources import PODS
from moxwell.embedded.controllermanager.storage.attachdetach import Attaching, Detaching, wants
from moxwell.embedded.controllermanager.storage.attacher import Attach
from moxwell.embedded.controllermanager.storage.binder import Claims, Volumes
from moxwell.embedded.controllermanager.storage.capacity import Room
from moxwell.embedded.controllermanager.storage.ephemeral import Ephemeral
from moxwell.embedded.controllermanager.storage.ephemeral import concerns as brings
from moxwell.embedded.controllermanager.storage.labels import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    CONTENTS,
    SNAPSHOTS,
)
from moxwell.embedded.controllermanager.storage.plugin import Plugin
from moxwell.embedded.controllermanager.storage.provisioner import Provision, Reclaim
from moxwell.embedded.controllermanager.storage.resizer import Grow
from moxwell.embedded.controllermanager.storage.snapshots import Contents, Snapshots
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller


def add_binding(runtime: Runtime) -> None:
    """What kube-controller-manager does, whoever stores."""
    kube, manager = runtime.kube, runtime.manager
    pods, attachments = manager.caches.of(PODS), manager.caches.of(ATTACHMENTS)
    claims = Claims(kube, manager.caches.of(CLAIMS))
    attaching = Attaching(kube, pods)
    for controller in (
        Controller(name="upstream.claim", reconciler=claims, per_share=1),
        Controller(name="upstream.volume", reconciler=Volumes(kube)),
        Controller(name="upstream.ephemeral", reconciler=Ephemeral(kube), needs=brings),
        Controller(name="upstream.attaching", reconciler=attaching, needs=wants),
        Controller(name="upstream.detaching", reconciler=Detaching(kube, attachments)),
    ):
        manager.add(controller)


def add_sidecars(runtime: Runtime, clock: Clock, plugin: Plugin) -> None:
    """What the sidecars of one driver do."""
    kube, manager = runtime.kube, runtime.manager
    provision, reclaim = Provision(kube, plugin), Reclaim(kube, plugin)
    attach, grow = Attach(kube, plugin, clock), Grow(kube, plugin)
    room = Room(kube, plugin, manager.caches.of(CLASSES))
    add_snapshots(runtime, clock, plugin)
    for name, loop in (
        ("provision", provision),
        ("reclaim", reclaim),
        ("attach", attach),
        ("grow", grow),
        ("room", room),
    ):
        manager.add(
            Controller(name=f"upstream.{name}", reconciler=loop, needs=loop.concerns)
        )  # fmt: skip


def add_snapshots(runtime: Runtime, clock: Clock, plugin: Plugin) -> None:
    """Snapshots, from the moment that their CRDs are there."""
    manager = runtime.manager
    for kind in (SNAPSHOTS, CONTENTS):
        manager.caches.of(kind, optional=True)
    taking = Contents(runtime.kube, plugin, clock)
    manager.add(
        Controller(name="upstream.snapshot", reconciler=Snapshots(runtime.kube, plugin, clock))
    )
    manager.add(
        Controller(name="upstream.snapshotcontent", reconciler=taking, needs=taking.concerns)
    )
