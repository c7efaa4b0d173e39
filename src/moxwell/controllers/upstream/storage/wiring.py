"""The storage stand-ins put together: the one function that ``app`` and tests call."""

from moxwell.clock import Clock
from moxwell.controllers.upstream.resources import PODS
from moxwell.controllers.upstream.storage.attacher import Attach
from moxwell.controllers.upstream.storage.attaching import Attaching, Detaching, wants
from moxwell.controllers.upstream.storage.binder import Claims, Volumes
from moxwell.controllers.upstream.storage.ephemeral import Ephemeral
from moxwell.controllers.upstream.storage.ephemeral import concerns as brings
from moxwell.controllers.upstream.storage.names import (
    ATTACHMENTS,
    CLAIMS,
    CLASSES,
    CONTENTS,
    SNAPSHOTS,
)
from moxwell.controllers.upstream.storage.plugin import Plugin
from moxwell.controllers.upstream.storage.provisioner import Provision, Reclaim
from moxwell.controllers.upstream.storage.resizer import Grow
from moxwell.controllers.upstream.storage.room import Room
from moxwell.controllers.upstream.storage.snapshots import Contents, Snapshots
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
