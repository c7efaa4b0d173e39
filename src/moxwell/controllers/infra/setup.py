"""
The controllers of this folder, put together: the one function that ``app`` and tests call.

In flow the runtime, the clock and the regions; out flow controllers ready to be added, already
listening to tasks and inventories. The regions themselves are run by whoever made them.
"""

from dataclasses import dataclass

from prometheus_client import Gauge

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.clock import Clock
from moxwell.controllers.infra.cluster import controller as clusters
from moxwell.controllers.infra.cluster.credentials import Credentials
from moxwell.controllers.infra.cluster.see import Caches as ClusterCaches
from moxwell.controllers.infra.cluster.see import Eyes as ClusterEyes
from moxwell.controllers.infra.collect.controller import Collector
from moxwell.controllers.infra.dhcp_addresses import Leases
from moxwell.controllers.infra.iso_cache import Shelves
from moxwell.controllers.infra.machine import controller as machines
from moxwell.controllers.infra.machine.explain import Explainer
from moxwell.controllers.infra.machine.guest_agent import Peer
from moxwell.controllers.infra.machine.ip_claims import Pools
from moxwell.controllers.infra.machine.placement import Chooser
from moxwell.controllers.infra.machine.see import Caches as MachineCaches
from moxwell.controllers.infra.machine.see import Eyes as MachineEyes
from moxwell.controllers.infra.machine.stale_clone import Carcasses
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.controllers.infra.task_backoff import Setbacks
from moxwell.controllers.infra.template import controller as templates
from moxwell.controllers.infra.templates import Moulds
from moxwell.controllers.infra.zone_defaults import Grounds
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Ledger
from moxwell.runtime.key import Key
from moxwell.runtime.manager import Runtime
from moxwell.runtime.reconciler import Controller


@dataclass(frozen=True, slots=True)
class Infra:
    """What was put together."""

    explainer: Explainer
    grounds: Grounds
    book: RegionBook
    collector: Collector


def add_infra(
    runtime: Runtime, clock: Clock, regions: Regions, ledger: Ledger, *, book: RegionBook
) -> Infra:
    """Add the infrastructure controllers to a runtime."""
    kube, manager = runtime.kube, runtime.manager
    caches = manager.caches
    grounds, moulds, shelves = Grounds(regions, book), Moulds(clock), Shelves(regions, clock)
    setbacks, peer = Setbacks(clock), Peer(kube, clock, moulds, shelves)
    carcasses = Carcasses(regions, clock)
    own, grown = caches.of(ProxmoxMachine), caches.of(ProxmoxCluster)
    claims, given, pools = (
        caches.of(IPAddressClaim),
        caches.of(IPAddress),
        caches.of(InClusterIPPool),
    )
    others = MachineCaches(caches.of(Machine), caches.of(Cluster), grown)
    chooser = Chooser(regions, clock, moulds, ledger, own)
    eyes = MachineEyes(
        regions,
        others,
        chooser=chooser,
        grounds=grounds,
        pools=Pools(claims, given, pools, caches.of(GlobalInClusterIPPool, optional=True)),
        peer=peer,
        setbacks=setbacks,
        carcasses=carcasses,
    )
    machine = machines.MachineReconciler(
        kube,
        regions,
        own,
        eyes=eyes,
        peer=peer,
        ledger=ledger,
        setbacks=setbacks,
        shelves=shelves,
        carcasses=carcasses,
    )
    credentials = Credentials(kube, grown)
    cluster = clusters.ClusterReconciler(
        kube,
        regions,
        grown,
        eyes=ClusterEyes(
            credentials,
            regions,
            ClusterCaches(caches.of(Cluster), own, pools, claims, given),
            grounds,
            book,
        ),
        book=book,
        credentials=credentials,
    )
    _add(runtime, machine, cluster, templates.TemplateReconciler(regions, moulds))
    orphans = Gauge(
        "moxwell_orphaned_guests",
        "Guests with a mark of ours whose machine is gone",
        ("region",),
        registry=runtime.metrics.registry,
    )
    collector = Collector(
        kube, regions, clock, own, shelves, count=lambda name, n: orphans.labels(name).set(n)
    )
    manager.also("infra.collect", collector.run, share="")
    leases = Leases(clock, own, lambda key: manager.wake(machines.NAME, key))
    manager.also("infra.leases", leases.run)  # each replica wakes those of its own shares
    return Infra(Explainer(own, others, chooser, grounds), grounds, book, collector)


def _add(
    runtime: Runtime,
    machine: machines.MachineReconciler,
    cluster: clusters.ClusterReconciler,
    template: templates.TemplateReconciler,
) -> None:
    manager = runtime.manager
    manager.add(
        Controller(
            name=machines.NAME,
            reconciler=machine,
            share=machines.share,
            needs=machines.needs,
            pausable=True,
        )
    )
    manager.add(
        Controller(name=clusters.NAME, reconciler=cluster, needs=clusters.needs, pausable=True)
    )
    manager.add(Controller(name=templates.NAME, reconciler=template))

    def wake_machine(key: Key) -> None:
        manager.wake(machines.NAME, key)

    def wake_cluster(key: Key) -> None:
        manager.wake(clusters.NAME, key)

    machine.listen(wake_machine)
    cluster.listen(wake_cluster)
