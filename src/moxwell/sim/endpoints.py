"""
Every endpoint there is: the route tables of all modules, in one list.
"""

from collections.abc import Iterable

from moxwell.sim import (
    cluster,
    firewall_endpoints,
    ha,
    ha_manager,
    ha_rules,
    index,
    network,
    nodes,
    pools,
    qemu,
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
from moxwell.sim.route import Route


def all_routes() -> Iterable[Route]:
    """Routes of the engine's own modules and of the guests'."""
    for module in (
        cluster,
        firewall_endpoints,
        ha,
        ha_rules,
        index,
        network,
        nodes,
        pools,
        qemu,
        replication,
        resources,
        roles,
        sdn,
        sdn_vnets,
        storages,
        tasklist,
        tickets,
        users,
    ):
        yield from module.ROUTES


def resume(desk: Desk) -> None:
    """After a start: bring back what runs beside requests."""
    ha_manager.wake(desk)
