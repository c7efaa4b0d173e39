"""The route tables of all endpoint modules, in one list."""

from collections.abc import Iterable

from moxwell.lab.proxmox import (
    agent,
    backup_jobs,
    bulk_actions,
    ceph,
    cluster,
    consoles,
    directory_index,
    feature_lists,
    mappings,
    network,
    node_hardware,
    node_services,
    node_settings,
    nodes,
    pools,
    replication,
    replication_runs,
    resources,
    rrd,
    storages,
    tasklist,
)
from moxwell.lab.proxmox.access import realms, roles, tickets, users
from moxwell.lab.proxmox.firewall import endpoints as firewall_endpoints
from moxwell.lab.proxmox.ha import manager as ha_manager
from moxwell.lab.proxmox.ha import resources as ha
from moxwell.lab.proxmox.ha import rules as ha_rules
from moxwell.lab.proxmox.lxc import routes as lxc_routes
from moxwell.lab.proxmox.qemu import monitor, remote_migrate, start
from moxwell.lab.proxmox.qemu import routes as qemu_routes
from moxwell.lab.proxmox.request_context import RegionRuntime
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.sdn import controllers as sdn_controllers
from moxwell.lab.proxmox.sdn import ips as sdn_ips
from moxwell.lab.proxmox.sdn import locking as sdn_locking
from moxwell.lab.proxmox.sdn import node_status as sdn_node_status
from moxwell.lab.proxmox.sdn import plain_objects as sdn_plain_objects
from moxwell.lab.proxmox.sdn import subnets as sdn_subnets
from moxwell.lab.proxmox.sdn import vnets as sdn_vnets
from moxwell.lab.proxmox.sdn import zones as sdn
from moxwell.lab.proxmox.volumes import routes as volume_routes

_MODULES = (
    agent,
    backup_jobs,
    ceph,
    cluster,
    consoles,
    firewall_endpoints,
    ha,
    ha_rules,
    directory_index,
    lxc_routes,
    mappings,
    monitor,
    network,
    node_hardware,
    node_services,
    node_settings,
    bulk_actions,
    nodes,
    pools,
    qemu_routes,
    realms,
    replication,
    resources,
    rrd,
    remote_migrate,
    feature_lists,
    roles,
    sdn,
    sdn_controllers,
    sdn_ips,
    sdn_locking,
    sdn_node_status,
    sdn_plain_objects,
    sdn_vnets,
    sdn_subnets,
    storages,
    tasklist,
    tickets,
    users,
    volume_routes,
)


def all_routes() -> Iterable[ApiRoute]:
    """All routes."""
    for module in _MODULES:
        yield from module.ROUTES


def resume(runtime: RegionRuntime) -> None:
    """Restart background activity after a restart of the simulator."""
    ha_manager.start_manager(runtime)
    replication_runs.start_scheduler(runtime)
    start.resume(runtime)
