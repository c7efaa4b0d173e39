"""
``/pools``: resource pools of guests and storages.

Members are not checked for existence; unknown VMIDs are ignored when the pool is deleted.
"""

import copy

from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.access.roles import check_modify
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import PveException, die, failing_as
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.resources import guest_row, storage_row
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row, SimPool, SimRegion


def list_pools(call: PveCall) -> list[Row]:
    if "poolid" in call.params:
        pool = _pool(call)
        return [_row(pool) | {"members": members(call, pool)}]
    return [
        _row(pool)
        for pool in call.region.pools.values()
        if call.has_privileges(f"/pool/{pool.poolid}", "Pool.Audit")
    ]


def _row(pool: SimPool) -> Row:
    row: Row = {"poolid": pool.poolid}
    return row | ({"comment": pool.comment} if pool.comment is not None else {})


def _pool(call: PveCall) -> SimPool:
    poolid = call.params["poolid"]
    pool = call.region.pools.get(poolid)
    if pool is None:
        raise die(f"pool '{poolid}' does not exist")
    return pool


def get_pool(call: PveCall) -> Row:
    pool = _pool(call)
    return _row(pool) | {"members": members(call, pool)}


def members(call: PveCall, pool: SimPool) -> list[Row]:
    region, requested, rows = call.region, call.get("type"), []
    for vmid in pool.vms:
        guest = region.guests.get(vmid)
        if guest is not None and requested in {None, guest.kind}:
            status_valid = pvestatd.is_status_valid(region.hosts[guest.node], call.now())
            rows.append(guest_row(guest, region.statd_status.get(vmid), call.now(), status_valid))
    for name in pool.storages if requested in {None, "storage"} else ():
        storage = region.storages.get(name)
        if storage is None:
            continue
        nodes = [call.node, *region.hosts]
        node = next((n for n in nodes if storage.is_available_on(n)), call.node)
        rows.append(storage_row(call, storage, region.hosts[node]))
    return rows


def create_pool(call: PveCall) -> None:
    poolid, pools = call.params["poolid"], call.region.pools
    with failing_as("create pool failed"):
        if poolid in pools:
            raise die(f"pool '{poolid}' already exists")
        parent = poolid.rpartition("/")[0]
        if parent and parent not in pools:
            raise die(f"parent '{parent}' of pool '{poolid}' does not exist")
        if call.major >= 9 and not poolid.rpartition("/")[2][:1].isalpha():
            raise die("pool name must start with a letter")
        pools[poolid] = SimPool(poolid, call.get("comment") or None)


def update_pool(call: PveCall) -> None:
    """PUT pool; an error leaves all pools as they were."""
    pools = call.region.pools
    before = copy.deepcopy(pools)
    try:
        with failing_as("update pools failed"):
            _update(call)
    except PveException:
        pools.clear()
        pools.update(before)
        raise


def _update(call: PveCall) -> None:
    pool = _pool(call)
    if "comment" in call.params:
        pool.comment = call.params["comment"] or None
    for text in formats.split_list(call.get("vms", "")):
        vmid = int(text)
        check_modify(call, f"/vms/{vmid}")
        if call.get("delete"):
            if vmid not in pool.vms:
                raise die(f"VM {vmid} is not a pool member")
            pool.vms.remove(vmid)
        else:
            _add_guest(call, pool, vmid)
    for name in formats.split_list(call.get("storage", "")):
        check_modify(call, f"/storage/{name}")
        _change_storage(call, pool, name)


def _add_guest(call: PveCall, pool: SimPool, vmid: int) -> None:
    other = next((p for p in call.region.pools.values() if vmid in p.vms), None)
    if other is pool:
        raise die(f"VM {vmid} is already a pool member")
    if other is not None:
        if not call.get("allow-move"):
            belongs = f"VM {vmid} belongs already to pool '{other.poolid}'"
            raise die(f"{belongs} and 'allow-move' is not set")
        call.check(f"/pool/{other.poolid}", "Pool.Allocate")
        other.vms.remove(vmid)
    pool.vms.append(vmid)


def _change_storage(call: PveCall, pool: SimPool, name: str) -> None:
    if call.get("delete"):
        if name not in pool.storages:
            raise die(f"Storage '{name}' is not a pool member")
        pool.storages.remove(name)
    elif name in pool.storages:
        raise die(f"Storage '{name}' is already a pool member")
    else:
        pool.storages.append(name)


def delete_pool(call: PveCall) -> None:
    with failing_as("delete pool failed"):
        pool = _pool(call)
        if holds := _members(call.region, pool):
            raise die(f"pool '{pool.poolid}' is not empty (contains {holds[0]})")
        del call.region.pools[pool.poolid]
    if "/" in pool.poolid:
        return  # PVE finds only the ACLs of pools without a parent
    access, path = call.region.access, f"/pool/{pool.poolid}"
    access.acl = [a for a in access.acl if a.path != path and not a.path.startswith(f"{path}/")]


def _members(region: SimRegion, pool: SimPool) -> list[str]:
    """What keeps a pool from being deleted."""
    return [
        *(f"pool '{p}'" for p in sorted(region.pools) if p.startswith(f"{pool.poolid}/")),
        *(f"VM {vmid}" for vmid in sorted(pool.vms) if vmid in region.guests),
        *(f"storage '{s}'" for s in sorted(pool.storages) if s in region.storages),
    ]


_ALLOCATE = perm("/pool/{poolid}", "Pool.Allocate")

ROUTES = (
    ApiRoute("GET", "/pools", list_pools, permission=anyone),
    ApiRoute("POST", "/pools", create_pool, permission=_ALLOCATE),
    ApiRoute("PUT", "/pools", update_pool, permission=_ALLOCATE),
    ApiRoute("DELETE", "/pools", delete_pool, permission=_ALLOCATE),
    ApiRoute("GET", "/pools/{poolid}", get_pool, permission=perm("/pool/{poolid}", "Pool.Audit")),
    ApiRoute("PUT", "/pools/{poolid}", update_pool, permission=_ALLOCATE),
    ApiRoute("DELETE", "/pools/{poolid}", delete_pool, permission=_ALLOCATE),
)
