"""
The QEMU guest agent of a simulated guest.

``answer`` returns the ``return`` value of the QMP guest agent protocol. ``guest-exec`` knows the
commands that provisioning uses (``cat``, ``test``, ``cloud-init status``, ``hostname``, ``true``);
any other command exits with 127. Raises ``Invalid`` for requests that the agent rejects.
"""

import base64
import ipaddress
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.errors import Invalid
from moxwell.lab.guests.hardware import GuestInterface

PROC_TCP = "/proc/net/tcp"
ESTABLISHED, SYN_SENT = 1, 2
ERROR_NO_FILE = "failed to open file '{}' (mode: 'r'): No such file or directory"


@dataclass(slots=True)
class OperatingSystem:
    """
    The state of a guest operating system that its agent reports: files, interfaces, exited
    processes.
    """

    hostname: str = ""
    files: dict[str, str] = field(default_factory=dict)
    interfaces: tuple[GuestInterface, ...] = ()
    cloud_init: str = "running"  # running, done or error
    ended: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    next_pid: int = 1000
    halt: Callable[[], Any] | None = None
    connections: Callable[[], Iterable[tuple[str, int, bool]]] = tuple
    """Servers by IPv4 address and port, and whether the last request got an answer."""


def answer(system: OperatingSystem, command: str, args: Mapping[str, Any]) -> Any:
    """Return the ``return`` value of one agent command."""
    name = command.removeprefix("guest-")
    handler = _COMMANDS.get(name)
    if handler is None:
        raise Invalid(f"The command guest-{name} has not been found")
    return handler(system, args)


def _interfaces(system: OperatingSystem, _: Mapping[str, Any]) -> Any:
    loopback = [{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}]
    rows = [{"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": loopback}]
    for device in system.interfaces:
        addresses = [_address(a) for a in device.addresses]
        rows.append(
            {"name": device.name, "hardware-address": device.mac, "ip-addresses": addresses}
        )
    return rows


def _address(cidr: str) -> dict[str, Any]:
    address, _, prefix = cidr.partition("/")
    kind = "ipv6" if ":" in address else "ipv4"
    return {"ip-address-type": kind, "ip-address": address, "prefix": int(prefix or 32)}


def _osinfo(system: OperatingSystem, _: Mapping[str, Any]) -> Any:
    return {
        "id": "ubuntu",
        "name": "Ubuntu",
        "pretty-name": "Ubuntu 24.04 LTS (simulated)",
        "version": "24.04 LTS",
        "version-id": "24.04",
        "kernel-release": "6.8.0-sim",
        "machine": "x86_64",
    }


def _exec(system: OperatingSystem, args: Mapping[str, Any]) -> Any:
    given = args.get("command") or [args.get("path"), *(args.get("arg") or ())]
    argv = [given] if isinstance(given, str) else [str(a) for a in given]
    code, out, err = _run(system, _strip_shell(argv))
    system.next_pid += 1
    system.ended[system.next_pid] = _result(code, out, err)
    return {"pid": system.next_pid}


def _strip_shell(argv: list[str]) -> list[str]:
    """Strip ``sh -c`` and the directory of the program."""
    if len(argv) == 3 and argv[0].endswith("sh") and argv[1] == "-c":
        argv = argv[2].split()
    return [argv[0].rsplit("/", 1)[-1], *argv[1:]] if argv else [""]


def _run(system: OperatingSystem, argv: list[str]) -> tuple[int, str, str]:
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


def _cat(system: OperatingSystem, path: str) -> tuple[int, str, str]:
    content = _read(system, path)
    if content is not None:
        return 0, content, ""
    return 1, "", f"cat: {path}: No such file or directory\n"


def _result(code: int, out: str, err: str) -> Mapping[str, Any]:
    result: dict[str, Any] = {"exited": 1, "exitcode": code}
    if out:
        result["out-data"] = out
    if err:
        result["err-data"] = err
    return result


def _exec_status(system: OperatingSystem, args: Mapping[str, Any]) -> Any:
    result = system.ended.pop(int(args.get("pid", -1)), None)
    if result is None:
        raise Invalid("Invalid parameter 'pid'")
    return result


def _file_read(system: OperatingSystem, args: Mapping[str, Any]) -> Any:
    path = str(args.get("file") or args.get("path"))
    content = _read(system, path)
    if content is None:
        raise Invalid(ERROR_NO_FILE.format(path))
    return {"content": content, "bytes-read": len(content.encode())}


def _read(system: OperatingSystem, path: str) -> str | None:
    return _proc_tcp(system) if path == PROC_TCP else system.files.get(path)


def _proc_tcp(system: OperatingSystem) -> str:
    """The connections in the form of Linux: addresses in hexadecimal, little-endian."""
    addresses = [a.split("/")[0] for i in system.interfaces for a in i.addresses if ":" not in a]
    local = addresses[0] if addresses else "0.0.0.0"
    lines = ["  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"]
    for number, (address, port, answered) in enumerate(system.connections()):
        state = ESTABLISHED if answered else SYN_SENT
        remote = f"{_hex(address)}:{port:04X} {state:02X}"
        lines.append(f"{number:4}: {_hex(local)}:{40000 + number:04X} {remote}")
    return "\n".join(lines) + "\n"


def _hex(address: str) -> str:
    (number,) = struct.unpack("<I", ipaddress.IPv4Address(address).packed)
    return f"{number:08X}"


def _file_write(system: OperatingSystem, args: Mapping[str, Any]) -> Any:
    content = str(args.get("content", ""))
    if str(args.get("encode", 1)) in {"0", "False"}:
        content = base64.b64decode(content).decode(errors="replace")
    system.files[str(args.get("file") or args.get("path"))] = content
    return None


def _shutdown(system: OperatingSystem, _: Mapping[str, Any]) -> Any:
    if system.halt is not None:
        system.halt()
    return {}


_COMMANDS: Mapping[str, Callable[[OperatingSystem, Mapping[str, Any]], Any]] = {
    "ping": lambda s, a: {},
    "info": lambda s, a: {"version": "8.2.0", "supported_commands": []},
    "network-get-interfaces": _interfaces,
    "get-osinfo": _osinfo,
    "get-host-name": lambda s, a: {"host-name": s.hostname},
    "get-timezone": lambda s, a: {"zone": "UTC", "offset": 0},
    "get-users": lambda s, a: [],
    "get-fsinfo": lambda s, a: [],
    "fsfreeze-status": lambda s, a: "thawed",
    "fsfreeze-freeze": lambda s, a: 0,  # without filesystems, as get-fsinfo says
    "fsfreeze-thaw": lambda s, a: 0,
    "fstrim": lambda s, a: {"paths": []},
    "exec": _exec,
    "exec-status": _exec_status,
    "file-read": _file_read,
    "file-write": _file_write,
    "shutdown": _shutdown,
}
