"""
Every endpoint there is: the route tables of all modules, in one list.
"""

from collections.abc import Iterable

from moxwell.sim import (
    agent,
    backup_jobs,
    cluster,
    index,
    network,
    node_wide,
    nodes,
    pools,
    replication,
    resources,
    storages,
    tasklist,
)
from moxwell.sim.access import realms, roles, tickets, users
from moxwell.sim.call import Desk
from moxwell.sim.firewall import endpoints as firewall_endpoints
from moxwell.sim.ha import manager as ha_manager
from moxwell.sim.ha import resources as ha
from moxwell.sim.ha import rules as ha_rules
from moxwell.sim.lxc import routes as lxc_routes
from moxwell.sim.qemu import routes as qemu_routes
from moxwell.sim.qemu import start
from moxwell.sim.route import Route
from moxwell.sim.sdn import vnets as sdn_vnets
from moxwell.sim.sdn import zones as sdn
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
