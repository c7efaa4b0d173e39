"""
What a write request changes: the guests, volumes or other named objects in its path and parameters.

Pure. The result is checked against what the caller owns and is written to the audit record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from moxwell.pve.values import Params


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The objects that one request changes; ``name`` is a pool, HA rule or the like."""

    host: str = ""
    vmids: tuple[int, ...] = ()
    volume: str = ""
    name: str = ""


def target_of(method: str, path: str, params: Params) -> WriteTarget:
    """Find what a request changes; an unknown path is named by the path itself."""
    parts = unquote(path).strip("/").split("/")
    match parts:
        case ["nodes", host, "qemu" | "lxc", *rest]:
            return WriteTarget(host, _guests(rest, params))
        case ["nodes", host, "storage", _, "content", *volid] if volid and method != "POST":
            return WriteTarget(host, volume="/".join(volid))
        case ["nodes", host, "storage", _, "content" | "upload" | "download-url", *_]:
            return WriteTarget(
                host, volume=str(params.get("target") or params.get("filename") or "")
            )
        case ["nodes", host, "vzdump"]:
            return WriteTarget(host, _number(params.get("vmid")))
        case ["nodes", host, "replication", job, *_]:
            return WriteTarget(host, _number(job.partition("-")[0]))
        case ["nodes", host, *rest]:
            return WriteTarget(host, name="/".join(rest))
        case ["cluster", "replication", *job]:
            number = job[0] if job else str(params.get("id", ""))
            return WriteTarget(vmids=_number(number.partition("-")[0]))
        case ["cluster", "ha", "resources", *sid]:
            number = sid[0] if sid else str(params.get("sid", ""))
            return WriteTarget(vmids=_number(number.partition(":")[2]))
        case ["pools", *pool]:
            return WriteTarget(vmids=_members(params), name=_name(pool, params, "poolid"))
        case ["cluster", "ha", kind, *rest]:
            return WriteTarget(name=_name(rest, params, kind.removesuffix("s")))
        case ["cluster", "firewall", "groups", *rest]:
            return WriteTarget(name=_name(rest, params, "group"))
        case ["cluster", "sdn", kind, *rest]:
            return WriteTarget(name=_name(rest, params, kind.removesuffix("s")))
    return WriteTarget(name="/".join(parts))


def _guests(rest: list[str], params: Params) -> tuple[int, ...]:
    match rest:
        case []:
            return _number(params.get("vmid"))
        case [_, "clone"]:  # the source is only read
            return _number(params.get("newid"))
        case [vmid, "move_disk" | "move_volume"]:
            return (*_number(vmid), *_number(params.get("target-vmid")))
        case [vmid, *_]:
            return _number(vmid)
    return ()


def _number(text: object) -> tuple[int, ...]:
    return (int(text),) if isinstance(text, str | int) and str(text).isdigit() else ()


def _members(params: Mapping[str, object]) -> tuple[int, ...]:
    return tuple(int(vmid) for vmid in str(params.get("vms") or "").split(",") if vmid.isdigit())


def _name(rest: list[str], params: Mapping[str, object], key: str) -> str:
    return rest[0] if rest else str(params.get(key, ""))
