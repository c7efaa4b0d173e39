"""
The default ``GuestOs``: a minimal Linux with a guest agent, for VMs that boot a kernel by ``args``.

It reproduces the guest of the API recordings: a fixed host name and address, a few commands, files
in memory. Any other VM runs no operating system.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from moxwell.clock import Clock
from moxwell.errors import Invalid
from moxwell.lab.proxmox.builtin_shell import CommandResult, ShellEnvironment, is_known, run
from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.vm import memory_mib
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestVm

_BOOTS = re.compile(r"-kernel\s+\S+.*-initrd\s+\S+")
LIMIT = 16 << 20
MEMORY_BLOCK_MIB = 128


@dataclass(frozen=True, slots=True)
class BuiltinGuestFacts:
    """The properties that the guest agent reports."""

    hostname: str = "guest1"
    address: str = "192.168.78.50"
    prefix: int = 24
    kernel: str = "6.1.0-54-cloud-amd64"
    build: str = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.190-1 (2026-10-16)"
    name: str = "Guest"
    ident: str = "guest"
    version: str = "1"


@dataclass(slots=True)
class _Running:
    """One running guest."""

    env: ShellEnvironment
    pid: int = 104
    done: dict[int, tuple[float, CommandResult]] = field(
        default_factory=dict
    )  # pid -> (exit time, result)


class BuiltinGuest:
    """A :class:`~moxwell.lab.proxmox.guest.GuestOs` for VMs that boot a kernel directly."""

    def __init__(self, clock: Clock, facts: BuiltinGuestFacts | None = None) -> None:
        self._clock, self._facts = clock, facts or BuiltinGuestFacts()
        self._up: dict[tuple[str, int], _Running] = {}

    async def booted(self, vm: GuestVm) -> None:
        if not _BOOTS.search(str(vm.conf.get("args", ""))):
            return
        facts = self._facts
        release = f'NAME="{facts.name}"\nID={facts.ident}\nVERSION_ID="{facts.version}"\n'
        env = ShellEnvironment(release=facts.kernel, hostname=facts.hostname)
        env.files["/etc/hostname"] = f"{facts.hostname}\n".encode()
        env.files["/etc/os-release"] = release.encode()
        self._up[vm.region, vm.vmid] = _Running(env)

    async def stopped(self, region: str, vmid: int) -> None:
        self._up.pop((region, vmid), None)

    def handles_shutdown(self, vm: GuestVm) -> bool:
        """It ignores the ACPI power button and reacts only to its agent."""
        return False

    async def agent(self, vm: GuestVm, command: str, args: dict[str, Any]) -> Any:
        running = self._up.get((vm.region, vm.vmid))
        if running is None:
            raise GuestAgentNotRunning
        if command in ("exec", "exec-status", "file-read", "file-write"):
            return getattr(self, "_" + command.replace("-", "_"))(vm, running, args)
        return self._simple(vm, command)

    def _simple(self, vm: GuestVm, command: str) -> Any:
        facts = self._facts
        answers: dict[str, Any] = {
            "ping": {},
            "shutdown": {},
            "info": {"version": "7.2.22", "supported_commands": []},
            "get-host-name": {"host-name": facts.hostname},
            "get-timezone": {"zone": "UTC", "offset": 0},
            "get-time": int(self._clock.now().timestamp() * 1e9),
            "get-users": [],
            "get-fsinfo": [],
            "fsfreeze-status": "thawed",  # without filesystems nothing is frozen
            "fsfreeze-freeze": 0,
            "fsfreeze-thaw": 0,
            "fstrim": {"paths": []},
            "get-memory-block-info": {"size": MEMORY_BLOCK_MIB << 20},
            "get-memory-blocks": self._memory_blocks(vm),
            "get-vcpus": self._vcpus(vm),
            "get-osinfo": {
                "machine": "x86_64",
                "id": facts.ident,
                "kernel-version": facts.build,
                "kernel-release": facts.kernel,
                "version-id": facts.version,
                "name": facts.name,
                "pretty-name": f"{facts.name} {facts.version}",
            },
            "network-get-interfaces": self._interfaces(vm),
            "set-user-password": {},
        }
        if command not in answers:
            raise Invalid(f"The command guest-{command} has not been found")
        return answers[command]

    def _memory_blocks(self, vm: GuestVm) -> list[dict[str, Any]]:
        count = -(-memory_mib(vm.conf) // MEMORY_BLOCK_MIB)
        return [{"phys-index": n, "online": True, "can-offline": True} for n in range(count)]

    def _vcpus(self, vm: GuestVm) -> list[dict[str, Any]]:
        count = int(vm.conf.get("cores") or 1) * int(vm.conf.get("sockets") or 1)
        return [{"logical-id": n, "online": True, "can-offline": n > 0} for n in range(count)]

    def _interfaces(self, vm: GuestVm) -> list[dict[str, Any]]:
        counters = {
            f"{way}-{what}": 0
            for way in ("rx", "tx")
            for what in ("bytes", "packets", "errs", "dropped")
        }
        rows: list[dict[str, Any]] = [
            {
                "name": "lo",
                "hardware-address": "00:00:00:00:00:00",
                "ip-addresses": [_address("127.0.0.1", 8), _address("::1", 128)],
                "statistics": dict(counters),
            }
        ]
        if "net0" in vm.conf:
            mac = devices.read(devices.NET, vm.conf["net0"]).get("macaddr", "").lower()
            own = _address(self._facts.address, self._facts.prefix)
            rows.append(
                {
                    "name": "eth0",
                    "hardware-address": mac,
                    "ip-addresses": [own],
                    "statistics": dict(counters),
                }
            )
        return rows

    # ------------------------------------------------------------------ exec and files

    def _exec(self, vm: GuestVm, running: _Running, args: dict[str, Any]) -> dict[str, int]:
        argv = [str(label) for label in args["command"]]
        if not argv or not is_known(argv[0]):
            name = argv[0] if argv else ""
            raise Invalid(f"Failed to execute child process “{name}” (No such file or directory)")
        running.pid += 2
        stdin = str(args.get("input-data") or "").encode()
        found = run(running.env, argv, stdin, running.pid)
        ends = self._clock.monotonic() + found.seconds
        running.done[running.pid] = (ends, found)
        if found.power_off:
            vm.power_off()
        return {"pid": running.pid}

    def _exec_status(self, vm: GuestVm, running: _Running, args: dict[str, Any]) -> dict[str, Any]:
        """The result of a command; readable once after it exited."""
        pid = int(args["pid"])
        if pid not in running.done:
            raise Invalid("Invalid parameter 'pid'")
        ends, found = running.done[pid]
        if self._clock.monotonic() < ends:
            return {"exited": False}
        del running.done[pid]
        row: dict[str, Any] = {"exited": True}
        if found.signal is not None:
            row["signal"] = found.signal
        else:
            row["exitcode"] = found.code
        for key, data in (("out", found.out), ("err", found.err)):
            if data:
                row[f"{key}-data"] = data[:LIMIT].decode("utf-8", "replace")
                row[f"{key}-truncated"] = int(len(data) > LIMIT)
        return row

    def _file_read(self, vm: GuestVm, running: _Running, args: dict[str, Any]) -> dict[str, Any]:
        path = str(args["file"])
        problem = running.env.open_error(path, write=False)
        if problem is not None:
            raise Invalid(f"failed to open file '{path}' (mode: 'r'): {problem}")
        data = running.env.files[path]
        row: dict[str, Any] = {"content": data[:LIMIT].decode("utf-8", "replace")}
        row["bytes-read"] = min(len(data), LIMIT)
        return row | ({"truncated": 1} if len(data) > LIMIT else {})

    def _file_write(self, vm: GuestVm, running: _Running, args: dict[str, Any]) -> None:
        path = str(args["file"])
        problem = running.env.open_error(path, write=True)
        if problem is not None:
            raise Invalid(f"failed to open file '{path}' (mode: 'wb'): {problem}")
        running.env.files[path] = args["content"]


def _address(text: str, prefix: int) -> dict[str, Any]:
    kind = "ipv6" if ":" in text else "ipv4"
    return {"ip-address": text, "ip-address-type": kind, "prefix": prefix}
