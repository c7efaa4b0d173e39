"""
The QEMU guest agent of a simulated guest.

Answers with the ``return`` of the real protocol. ``exec`` knows the few commands that provisioning
uses (``cat``, ``test``, ``cloud-init status``, ``hostname``, ``true``); any other exits with 127,
as a shell would that does not find it. Raises ``Invalid`` for what the agent itself would refuse.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.errors import Invalid
from moxwell.lab.guests.hardware import Interface

ERROR_NO_FILE = "failed to open file '{}' (mode: 'r'): No such file or directory"


@dataclass(slots=True)
class System:
    """The operating system as its agent sees it: names, files, cards, processes that ended."""

    hostname: str = ""
    files: dict[str, str] = field(default_factory=dict)
    interfaces: tuple[Interface, ...] = ()
    cloud_init: str = "running"  # running, done or error
    ended: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    next_pid: int = 1000
    halt: Callable[[], Any] | None = None


def answer(system: System, command: str, args: Mapping[str, Any]) -> Any:
    """The ``return`` of one command."""
    name = command.removeprefix("guest-")
    handler = _COMMANDS.get(name)
    if handler is None:
        raise Invalid(f"The command guest-{name} has not been found")
    return handler(system, args)


def _interfaces(system: System, _: Mapping[str, Any]) -> Any:
    loopback = [{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}]
    rows = [{"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": loopback}]
    for card in system.interfaces:
        addresses = [_address(a) for a in card.addresses]
        rows.append({"name": card.name, "hardware-address": card.mac, "ip-addresses": addresses})
    return rows


def _address(cidr: str) -> dict[str, Any]:
    address, _, prefix = cidr.partition("/")
    kind = "ipv6" if ":" in address else "ipv4"
    return {"ip-address-type": kind, "ip-address": address, "prefix": int(prefix or 32)}


def _osinfo(system: System, _: Mapping[str, Any]) -> Any:
    return {
        "id": "ubuntu",
        "name": "Ubuntu",
        "pretty-name": "Ubuntu 24.04 LTS (simulated)",
        "version": "24.04 LTS",
        "version-id": "24.04",
        "kernel-release": "6.8.0-sim",
        "machine": "x86_64",
    }


def _exec(system: System, args: Mapping[str, Any]) -> Any:
    given = args.get("command") or [args.get("path"), *(args.get("arg") or ())]
    argv = [given] if isinstance(given, str) else [str(a) for a in given]
    code, out, err = _run(system, _unwrapped(argv))
    system.next_pid += 1
    system.ended[system.next_pid] = _result(code, out, err)
    return {"pid": system.next_pid}


def _unwrapped(argv: list[str]) -> list[str]:
    """``sh -c "cat x"`` and full paths are taken for what they run."""
    if len(argv) == 3 and argv[0].endswith("sh") and argv[1] == "-c":
        argv = argv[2].split()
    return [argv[0].rsplit("/", 1)[-1], *argv[1:]] if argv else [""]


def _run(system: System, argv: list[str]) -> tuple[int, str, str]:
    program, rest = argv[0], argv[1:]
    if program == "cat" and rest:
        return _cat(system, rest[-1])
    if program == "test" and rest:
        return (0 if rest[-1] in system.files else 1), "", ""
    if program == "cloud-init" and rest[:1] == ["status"]:
        return (1 if system.cloud_init == "error" else 0), f"status: {system.cloud_init}\n", ""
    if program == "hostname":
        return 0, f"{system.hostname}\n", ""
    return (0, "", "") if program == "true" else (127, "", f"{program}: command not found\n")


def _cat(system: System, path: str) -> tuple[int, str, str]:
    if path in system.files:
        return 0, system.files[path], ""
    return 1, "", f"cat: {path}: No such file or directory\n"


def _result(code: int, out: str, err: str) -> Mapping[str, Any]:
    result: dict[str, Any] = {"exited": 1, "exitcode": code}
    if out:
        result["out-data"] = out
    if err:
        result["err-data"] = err
    return result


def _exec_status(system: System, args: Mapping[str, Any]) -> Any:
    result = system.ended.pop(int(args.get("pid", -1)), None)
    if result is None:
        raise Invalid("Invalid parameter 'pid'")
    return result


def _file_read(system: System, args: Mapping[str, Any]) -> Any:
    path = str(args.get("file") or args.get("path"))
    if path not in system.files:
        raise Invalid(ERROR_NO_FILE.format(path))
    content = system.files[path]
    return {"content": content, "bytes-read": len(content.encode())}


def _file_write(system: System, args: Mapping[str, Any]) -> Any:
    content = str(args.get("content", ""))
    if str(args.get("encode", 1)) in {"0", "False"}:
        content = base64.b64decode(content).decode(errors="replace")
    system.files[str(args.get("file") or args.get("path"))] = content
    return None


def _shutdown(system: System, _: Mapping[str, Any]) -> Any:
    if system.halt is not None:
        system.halt()
    return {}


_COMMANDS: Mapping[str, Callable[[System, Mapping[str, Any]], Any]] = {
    "ping": lambda s, a: {},
    "info": lambda s, a: {"version": "8.2.0", "supported_commands": []},
    "network-get-interfaces": _interfaces,
    "get-osinfo": _osinfo,
    "get-host-name": lambda s, a: {"host-name": s.hostname},
    "get-timezone": lambda s, a: {"zone": "UTC", "offset": 0},
    "get-users": lambda s, a: [],
    "get-fsinfo": lambda s, a: [],
    "fsfreeze-status": lambda s, a: "thawed",
    "fsfreeze-freeze": lambda s, a: 1,
    "fsfreeze-thaw": lambda s, a: 1,
    "fstrim": lambda s, a: {"paths": []},
    "exec": _exec,
    "exec-status": _exec_status,
    "file-read": _file_read,
    "file-write": _file_write,
    "shutdown": _shutdown,
}
