"""POST monitor and PUT sendkey: the human monitor of QEMU."""

import re

from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import bad_params, die
from moxwell.lab.proxmox.qemu.identity import QEMU_VERSIONS
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.state import SimGuest

_FREE = frozenset({"help", "?", "info"})
_MODIFY = frozenset(
    words(
        """
        gpa2hpa gpa2hva i announce_self backup_cancel balloon block_job_cancel block_job_complete
        block_job_pause block_job_resume block_job_set_speed block_resize block_set_io_throttle
        boot_set calc_dirty_rate cancel_vcpu_dirty_limit chardev-send-break closefd commit cont c
        cpu delvm eject exit_preconfig expire_password getfd gva2gpa loadvm log migrate_cancel
        migrate_continue migrate_pause migrate_set_capability migrate_set_parameter
        migrate_start_postcopy mouse_button mouse_move mouse_set one-insn-per-tb print p qemu-io
        qom-get qom-list quit q replay_break replay_delete_break replay_seek ringbuf_read
        ringbuf_write savevm sendkey set_link set_password set_vcpu_dirty_limit
        snapshot_blkdev_internal snapshot_delete_blkdev_internal stopcapture stop s sum sync-profile
        system_powerdown system_reset system_wakeup trace-event x x_colo_lost_heartbeat xp
        """
    )
)
_ROOT = frozenset(
    words(
        """
        backup block_stream change chardev-add chardev-change chardev-remove client_migrate_info
        device_add device_del drive_add drive_backup drive_del drive_mirror dump-guest-memory
        dumpdtb gdbserver hostfwd_add hostfwd_remove logfile mce memsave migrate migrate_incoming
        migrate_recover nbd_server_add nbd_server_remove nbd_server_start nbd_server_stop netdev_add
        netdev_del nmi o object_add object_del pcie_aer_inject_error pmemsave qom-set savevm-end
        savevm-start screendump snapshot_blkdev watchdog_action wavcapture xen-event-inject
        xen-event-list
        """
    )
)
_KEY = re.compile(r"[a-z0-9_]+(?:-[a-z0-9_]+)*")


def monitor(call: PveCall) -> str:
    """POST monitor: an error of QEMU is text of the answer."""
    command = str(call.params["command"])
    found = re.match(r"\s*(\S+)", command)
    if not command:
        raise die("no command specified")
    if found is None:
        raise die(f"unexpected command '{command}'")
    if call.major >= 9:
        _check(call, found[1])
    guest = call.get_guest(call.params["vmid"])
    if not guest.running:
        return f"ERROR: VM {guest.vmid} not running\n"
    return _answer(call, guest, command.split())


def _check(call: PveCall, name: str) -> None:
    """What each command of the monitor needs."""
    if name in _FREE:
        return
    if name in _MODIFY:
        call.check("/", "Sys.Modify")
    elif name in _ROOT and not call.is_root:
        raise die(f"root-only command '{name}'")
    elif not call.is_root:
        text = f"command '{name}' non-existent or not assigned a required permission"
        raise die(f"{text} yet, limiting to root user")


def _answer(call: PveCall, guest: SimGuest, command: list[str]) -> str:
    """The output of a command; those that change only what is not simulated print nothing."""
    match command:
        case ["info", "status"]:
            return f"VM status: {guest.status_word or 'running'}\r\n"
        case ["info", "name"]:
            return f"{guest.live.get('name') or f'vm{guest.vmid}'}\r\n"
        case ["info", "version"]:
            return f"{QEMU_VERSIONS.get(call.major, QEMU_VERSIONS[9])}\r\n"
        case ["stop" | "s"]:
            guest.paused = True
        case ["cont" | "c"]:
            guest.paused = False
        case [name, *_] if name not in _FREE | _MODIFY | _ROOT:
            return f"unknown command: '{name}'\r\n"
    return ""


async def sendkey(call: PveCall) -> None:
    """PUT sendkey."""
    if call.get("skiplock") and not call.is_root:
        raise bad_params(skiplock="Only root may use this option.")
    vmid, key = call.params["vmid"], str(call.params["key"])
    async with call.hold("qemu", vmid):
        guest = call.get_guest(vmid)
        if not guest.running:
            raise die(f"VM {vmid} not running")
        if not _KEY.fullmatch(key):
            raise die(f"invalid parameter: {key}\r")


_VM = "/nodes/{node}/qemu/{vmid}"
ROUTES = (
    ApiRoute("POST", f"{_VM}/monitor", monitor, permission=by_schema),
    ApiRoute("PUT", f"{_VM}/sendkey", sendkey, permission=by_schema),
)
