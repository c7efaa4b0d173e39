"""Checks of the storages of a region: content types, state, free space, sharing, formats. Pure."""

from collections.abc import Iterable, Iterator

from moxwell.preflight.facts import RegionFacts
from moxwell.preflight.outcome import RegionCheck, RegionNeeds, failed, passed, warned
from moxwell.pve.endpoints.nodes import HostStorageStatus
from moxwell.scheduling.inventory_model import GIB

MIN_FREE_PART = 0.1
CONTENTS = (("images", "disks"), ("iso", "bootstrap ISOs"))
NO_SNAPSHOTS = frozenset({"lvm", "iscsi", "iscsidirect"})  # raw block devices without snapshots


def check_storages(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """Whether every allowed host has storages for disks and ISOs, and their state."""
    found = [*_contents(facts, needs), *_named(facts, needs), *_states(facts, needs)]
    found += _formats(facts, needs)
    if not found and facts.storages:
        found.append(passed("storage", "all hosts have storages for disks and bootstrap ISOs"))
    return found


def _usable(rows: Iterable[HostStorageStatus]) -> list[HostStorageStatus]:
    return [row for row in rows if row.active and row.enabled]


def _hosts(
    facts: RegionFacts, needs: RegionNeeds
) -> Iterator[tuple[str, tuple[HostStorageStatus, ...]]]:
    return ((h, rows) for h, rows in sorted(facts.storages.items()) if needs.allows(h))


def _contents(facts: RegionFacts, needs: RegionNeeds) -> Iterator[RegionCheck]:
    for host, rows in _hosts(facts, needs):
        for content, purpose in CONTENTS:
            if not any(row.accepts(content) for row in _usable(rows)):
                do = (
                    f"add the content type {content} to a storage of {host}: pvesm set STORAGE "
                    f"--content {content},… (all types that it should have)"
                )
                yield failed("storage", f"{host} has no active storage for {purpose}", do)


def _named(facts: RegionFacts, needs: RegionNeeds) -> Iterator[RegionCheck]:
    """The storage that is asked for: on each host, for disks, with space for them."""
    wanted = sum(guest.count * guest.disk_bytes for guest in needs.guests)
    free = dict[str, int]()
    for host, rows in _hosts(facts, needs):
        row = next((row for row in _usable(rows) if row.storage == needs.storage), None)
        if needs.storage and row is None:
            do = f"name another storage, or make {needs.storage} active on {host}"
            yield failed("storage", f"{needs.storage} is not active on {host}", do)
        elif row is not None and not row.accepts("images"):
            do = f"pvesm set {needs.storage} --content images,… (all types that it should have)"
            yield failed("storage", f"{needs.storage} does not take disks (images)", do)
        for each in _usable(rows):
            if each.accepts("images") and needs.storage in ("", each.storage):
                free[each.storage if each.shared else f"{host}/{each.storage}"] = each.avail
    if wanted > sum(free.values()) and free:
        text = f"the disks need {wanted / GIB:.0f} GiB, {sum(free.values()) / GIB:.0f} are free"
        yield failed("storage", text, "free space, add a storage, or ask for less")


def _states(facts: RegionFacts, needs: RegionNeeds) -> Iterator[RegionCheck]:
    seen: set[str] = set()
    for host, rows in _hosts(facts, needs):
        for row in rows:
            if row.storage in seen or not row.enabled:
                continue
            if not row.active:
                do = f"mount it, or disable it there: pvesm set {row.storage} --disable 1"
                yield warned("storage", f"{row.storage} is not active on {host}", do)
            elif row.total and row.avail < row.total * MIN_FREE_PART:
                text = f"{row.storage} on {host} is {1 - row.avail / row.total:.0%} full"
                yield warned("storage", text, "free space or extend it")
            else:
                continue
            if row.shared:
                seen.add(row.storage)


def _formats(facts: RegionFacts, needs: RegionNeeds) -> Iterator[RegionCheck]:
    """Storages for disks that have no snapshots, or on which no disk can move to another host."""
    rows = {row.storage: row for _, found in _hosts(facts, needs) for row in _usable(found)}
    disks = [row for row in rows.values() if row.accepts("images")]
    disks = [row for row in disks if needs.storage in ("", row.storage)]
    plain = sorted(row.storage for row in disks if row.type in NO_SNAPSHOTS)
    if plain and len(plain) == len(disks):
        do = "use a storage of type lvmthin, zfspool, rbd, or qcow2 files on dir or nfs"
        yield warned("storage", f"{', '.join(plain)}: no linked clones and no snapshots", do)
