"""
Every endpoint there is: the route tables of all modules, in one list.
"""

from collections.abc import Iterable

from moxwell.sim import (
    agent,
    backup_jobs,
    cluster,
    firewall_endpoints,
    ha,
    ha_manager,
    ha_rules,
    index,
    network,
    node_wide,
    nodes,
    pools,
    realms,
    replication,
    resources,
    roles,
    sdn,
    sdn_vnets,
    storages,
    tasklist,
    tickets,
    users,
)
from moxwell.sim.call import Desk
from moxwell.sim.lxc import routes as lxc_routes
from moxwell.sim.qemu import routes as qemu_routes
from moxwell.sim.qemu import start
from moxwell.sim.route import Route
from moxwell.sim.volumes import routes as volume_routes


def all_routes() -> Iterable[Route]:
    """Routes of the engine's own modules and of the guests'."""
    for module in (
        agent,
        backup_jobs,
        cluster,
        firewall_endpoints,
        ha,
        ha_rules,
        index,
        lxc_routes,
        network,
        node_wide,
        nodes,
        pools,
        qemu_routes,
        realms,
        replication,
        resources,
        roles,
        sdn,
        sdn_vnets,
        storages,
        tasklist,
        tickets,
        users,
        volume_routes,
    ):
        yield from module.ROUTES


def resume(desk: Desk) -> None:
    """After a start: bring back what runs beside requests."""
    ha_manager.wake(desk)
    start.resume(desk)
