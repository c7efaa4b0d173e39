"""
Checks at VM start: vCPUs, memory, NUMA, hugepages, affinity, bridges, volumes.

Most invalid configurations are accepted on update and rejected at start. The checks run in PVE's
order: first those of qemu-server, then those of QEMU.
"""

import re

from moxwell.lab.proxmox.bridges import has_bridge
from moxwell.lab.proxmox.config_schema import devices, formats, vm
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.qemu import command_line, machine, open_volumes, pci
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimGuest, SimHost
from moxwell.lab.proxmox.tasks import WorkerContext

STATIC_MIB = 1024
_PERL = " at /usr/share/perl5/PVE/QemuServer/Memory.pm line 405."
_EXITED = "start failed: QEMU exited with code 1"


def check_start(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    """Run all checks; raises the exit status of the start task."""
    conf, host = guest.conf, call.host
    if call.major >= 9:
        _check_volumes(call, conf)
    command_line.check_machine_version(call, conf)
    if not host.kvm and conf.get("kvm", 1):
        raise die(
            "KVM virtualisation configured, but not available. Either disable in VM configuration"
            " or enable in BIOS."
        )
    command_line.check_firmware(conf, call.major)
    command_line.check_usb_ports(conf)
    chosen = pci.choose(call, guest, pci.parse(call, conf))
    command_line.check_usb_devices(call, conf)
    _check_ports(conf)
    _check_cpus(conf, host)
    command_line.check_display(conf)
    command_line.check_confidential(conf)
    _check_memory(conf, host)
    command_line.check_nets(call, conf)
    machine.check_machine(str(conf.get("machine", "")), call.major)
    pci.reserve(call, guest, chosen)
    if call.major < 9:
        _check_volumes(call, conf)
    _check_hugepages(conf, host)
    _check_qemu(call, guest, ctx)


def _check_ports(conf: Conf) -> None:
    """The serial and parallel ports of the host, which simulated hosts do not have."""
    for kind in ("serial", "parallel"):
        for number in range(4):
            if conf.get(f"{kind}{number}", "socket") != "socket":
                raise die(f"no such {kind} device")


def max_cpus(conf: Conf) -> int:
    sockets = int(conf.get("sockets") or conf.get("smp") or 1)
    return sockets * int(conf.get("cores") or 1)


def _check_cpus(conf: Conf, host: SimHost) -> None:
    if max_cpus(conf) > host.cpus:
        raise die(f"MAX {host.cpus} vcpus allowed per VM on this node")


def ranges(text: str) -> list[tuple[int, int]]:
    """Parse ``0-1;3`` to pairs; raises PVE's error for a descending range."""
    found = []
    for part in text.split(";"):
        first, dash, last = part.partition("-")
        end = int(last) if dash else int(first)
        if end < int(first):
            raise die(f"invalid range: {first}-{last} ({last} < {first})")
        found.append((int(first), end))
    return found


def _numas(conf: Conf) -> list[tuple[int, dict[str, str]]]:
    found = [(n, conf.get(f"numa{n}")) for n in range(8)]
    return [(n, devices.read(devices.NUMA, text)) for n, text in found if text]


def _check_memory(conf: Conf, host: SimHost) -> None:
    memory, numas = vm.memory_mib(conf), _numas(conf)
    static = memory
    if "memory" in vm.read_hotplug(conf):
        static = _check_memory_hotplug(conf, memory, bool(numas))
    if conf.get("hugepages") and not conf.get("numa"):
        raise die(f"numa needs to be enabled to use hugepages{_PERL}")
    if "memory" in vm.read_hotplug(conf) and any(key.startswith("virtiofs") for key in conf):
        raise die("Memory hotplug does not work in combination with virtio-fs.")
    if not conf.get("numa"):
        return
    total = 0.0
    for number, numa in numas:
        total += _check_numa(conf, host, number, numa)
    if total and total != static:
        raise die("total memory for NUMA nodes must be equal to vm static memory")
    if not total:
        _check_split(conf, host, static)
    if "memory" in vm.read_hotplug(conf):
        _check_modules(conf, memory, static)


def _check_memory_hotplug(conf: Conf, memory: int, custom: bool) -> int:
    if not conf.get("numa"):
        raise die("NUMA needs to be enabled for memory hotplug")
    if custom:
        raise die("cannot enable memory hotplugging with custom NUMA topology")
    static = STATIC_MIB
    if conf.get("hugepages") == "1024":
        static *= int(conf.get("sockets") or 1)
    if memory < static:
        raise die(f"minimum memory must be {static}MB")
    return static


def _check_modules(conf: Conf, memory: int, static: int) -> None:
    """The memory above the static part is a sum of modules, whose size doubles every 32."""
    size, current = 1024 if conf.get("hugepages") == "1024" else 512, static
    for number in range(8 * 32):
        if current >= memory:
            return
        current += size << (number // 32)
        if current > memory:
            aligned = f"memory size ({memory}) must be aligned to {size << (number // 32)}"
            raise die(f"{aligned} for hotplugging")


def _check_numa(conf: Conf, host: SimHost, number: int, numa: dict[str, str]) -> float:
    ranges(numa.get("cpus", "0"))
    hostnodes = ranges(numa["hostnodes"]) if "hostnodes" in numa else None
    if not float(numa.get("memory") or 0):
        raise die(f"missing NUMA node{number} memory value")
    if conf.get("hugepages"):
        page_size(conf, host, int(float(numa["memory"])))
    if hostnodes is None:
        if conf.get("hugepages"):
            raise die(f"numa hostnodes need to be defined to use hugepages{_PERL}")
        return float(numa["memory"])
    for first, last in hostnodes:
        for node in range(first, last + 1):
            if node >= host.numa_nodes:
                raise die(f"host NUMA node{node} doesn't exist")
    if "policy" not in numa:
        raise die(f"you need to define a policy for hostnode {numa['hostnodes'].replace(';', ',')}")
    return float(numa["memory"])


def _check_split(conf: Conf, host: SimHost, static: int) -> None:
    sockets = int(conf.get("sockets") or 1)
    for node in range(sockets):
        if conf.get("hugepages"):
            if node >= host.numa_nodes:
                raise die(f"host NUMA node{node} doesn't exist")
            page_size(conf, host, static // sockets)


def page_size(conf: Conf, host: SimHost, memory: int) -> int:
    """The hugepage size for a memory size, both in MiB."""
    wanted = str(conf["hugepages"])
    if memory <= 0 or memory & 1:
        raise die(
            f"memory size '{memory}' is not a positive even integer; cannot use for hugepages"
        )
    if wanted == "any":
        return 1024 if memory % 1024 == 0 and "1024" in host.hugepages else 2
    if memory % int(wanted):
        raise die(
            f"Memory size {memory} is not a multiple of the requested hugepages size {wanted}"
        )
    return int(wanted)


def _check_hugepages(conf: Conf, host: SimHost) -> None:
    """Check for enough hugepages; a host that declares none has enough 2 MiB pages."""
    if not conf.get("hugepages") or not conf.get("numa"):
        return
    for _, numa in _numas(conf):
        if not re.fullmatch(r"\d", numa.get("hostnodes", "")):
            text = "more than 1 hostnode value in numa node is not supported when hugepages are"
            raise die(f"start failed: {text} enabled{_PERL}")
    if not host.hugepages:
        return
    memory = vm.memory_mib(conf)
    size = page_size(conf, host, memory)
    if memory // size > host.hugepages.get(str(size), 0):
        raise die(f"start failed: hugepage allocation failed{_PERL}")


def _check_volumes(call: PveCall, conf: Conf) -> None:
    store = files.volume_store(call)
    for drive in files.drives(conf):
        if drive.storage is None:
            continue
        store.get_enabled(drive.storage)
        if store.find(drive.file) is None:
            raise die(f"volume '{drive.file}' does not exist")


def _check_qemu(call: PveCall, guest: SimGuest, ctx: WorkerContext) -> None:
    """Errors that only QEMU or its tools detect."""
    conf = guest.conf
    if int(conf.get("vcpus") or 0) > max_cpus(conf):
        ctx.log("qemu: Invalid SMP CPUs: the number of CPUs is above the maximum")
        raise die(_EXITED)
    if conf.get("numa"):
        _check_assigned(conf, ctx)
    affinity = str(conf.get("affinity", "")).strip()
    if affinity and not formats.cpus(affinity) & set(range(call.host.cpus)):
        ctx.log("taskset: failed to set pid 0's affinity: Invalid argument")
        raise die(_EXITED)
    for name, net in files.nets(conf):
        if net.get("bridge") and not has_bridge(call, net["bridge"]):
            ctx.log(f"bridge '{net['bridge']}' does not exist")
            ctx.log(f"kvm: -netdev type=tap,id={name}: network script failed with status 512")
            raise die(_EXITED)
    if conf.get("args"):
        _check_args(call, str(conf["args"]), ctx)
    taken = open_volumes.first_locked(call, guest)
    if taken is not None:
        ctx.log(f'kvm: -drive file={taken.file}: Failed to get "write" lock')
        raise die(_EXITED)


def _check_assigned(conf: Conf, ctx: WorkerContext) -> None:
    """
    Check that each vCPU is below the maximum and in one NUMA node, and that the memory is
    divisible.
    """
    if not _numas(conf) and vm.memory_mib(conf) % int(conf.get("sockets") or 1):
        ctx.log("qemu: -object memory-backend-ram: Parameter 'size' expects a size")
        raise die(_EXITED)
    seen: set[int] = set()
    top = max_cpus(conf)
    for number, numa in _numas(conf):
        for first, last in ranges(numa.get("cpus", "0")):
            for cpu in range(first, last + 1):
                if cpu >= top:
                    text = f"CPU index ({cpu}) should be smaller than maxcpus ({top})"
                elif cpu in seen:
                    text = "CPU is already assigned to another node"
                else:
                    seen.add(cpu)
                    continue
                ctx.log(f"qemu-system-x86_64: -numa node,nodeid={number},cpus={cpu}: {text}")
                raise die(_EXITED)


def _check_args(call: PveCall, text: str, ctx: WorkerContext) -> None:
    """Check that the kernel and initrd files of ``args`` exist on the host."""
    for path in re.findall(r"-(?:kernel|initrd) (\S+)", text):
        if call.region.files and path not in call.region.files:
            ctx.log(f"qemu: could not open kernel file '{path}': No such file or directory")
            raise die(_EXITED)
