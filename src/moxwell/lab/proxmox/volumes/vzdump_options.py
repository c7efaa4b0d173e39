"""Checks of backup options that POST vzdump and backup jobs share (PVE::VZDump)."""

import re
from collections.abc import Mapping
from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Row, SimRegion

_VARIABLES = frozenset({"cluster", "guestname", "node", "vmid"})
_ROOT_ONLY = ("tmpdir", "dumpdir", "script", "job-id")


def check_permissions(call: PveCall, options: Mapping[str, Any]) -> None:
    """Options that only root or an administrator may set."""
    if call.is_root:
        return
    for name in _ROOT_ONLY:
        if name in options:
            raise bad_params(**{name: "Only root may set this option."})
    if any(name in options for name in ("bwlimit", "ionice", "performance")):
        call.check("/", "Sys.Modify")
    fleecing = re.search(r"storage=([^,]+)", str(options.get("fleecing", "")))
    if fleecing is not None:
        call.check(f"/storage/{fleecing[1]}", "Datastore.AllocateSpace")


def storage(options: Mapping[str, Any]) -> str | None:
    """The backup storage, unless a folder is given."""
    return None if options.get("dumpdir") else str(options.get("storage") or "local")


def verify(options: Row, *, complete: bool = True) -> None:
    """Options that exclude each other, the notes template, and what to back up."""
    for name in ("all", "exclude", "pool"):
        if options.get(name) and options.get("vmid"):
            raise bad_params(**{name: "option conflicts with option 'vmid'"})
    if "prune-backups" in options and "maxfiles" in options:
        raise bad_params(prune_backups="option conflicts with option 'maxfiles'")
    if options.get("notes-template"):
        _check_template(str(options["notes-template"]))
    if "exclude" in options and not options.get("pool"):
        options["all"] = 1
    if complete and not any(options.get(name) for name in ("all", "stop", "pool", "vmid")):
        raise bad_params(vmid="property is missing")


def _check_template(text: str) -> None:
    if "\n" in text:
        raise bad_params(notes_template="contains a line feed\n")
    unknown = [
        f"escape sequence '{found[0]}' at char {found.start()}"
        for found in re.finditer(r"\\.", text)
        if found[0] not in (r"\n", r"\\")
    ]
    unknown += [
        f"variable '{found[1]}' at char {found.end() - len(found[1])}"
        for found in re.finditer(r"\{\{([^\s{}]+)\}\}", text)
        if found[1] not in _VARIABLES
    ]
    if unknown:
        raise bad_params(notes_template=f"found unknown: {', '.join(unknown)}\n")


def included(region: SimRegion, options: Mapping[str, Any]) -> list[int]:
    """The VMIDs of a job on all nodes, or on its own, also of guests that do not exist."""
    if options.get("pool"):
        pool = region.pools.get(str(options["pool"]))
        if pool is None:
            raise die(f"pool '{options['pool']}' does not exist")
        chosen = [vmid for vmid in pool.vms if vmid in region.guests]
    elif options.get("vmid"):
        chosen = [int(v) for v in formats.split_list(str(options["vmid"]))]
    else:
        skipped = {int(v) for v in formats.split_list(str(options.get("exclude") or ""))}
        chosen = [v for v in region.guests if v not in skipped] if options.get("all") else []
    node = options.get("node")
    return sorted({v for v in chosen if node is None or _is_at(region, v, str(node))})


def _is_at(region: SimRegion, vmid: int, node: str) -> bool:
    """Whether a guest is on a node; a guest that does not exist is everywhere."""
    return vmid not in region.guests or region.guests[vmid].node == node
