"""The error table: every row matches a text of the real Proxmox."""

import json

import pytest

from moxwell.errors import (  # fmt: skip
    Busy,
    Conflict,
    Denied,
    Invalid,
    Missing,
    Retryable,
    Unreachable,
    Unsupported,
)
from moxwell.pve import errors as e

CASES: list[tuple[int, str, type[e.PveError]]] = [
    (401, "No ticket", e.CredentialsRefused),
    (401, "Authentication failed!", e.CredentialsRefused),
    (401, "Permission denied - invalid csrf token", e.CredentialsRefused),
    (403, "Permission check failed (pool 'nosuch' does not exist)", e.ObjectMissing),
    (403, "Permission check failed (/vms/100, VM.Audit)", e.PermissionDenied),
    (403, "Permission check failed", e.PermissionDenied),
    (501, "for data too large", e.InvalidParameter),
    (501, "Method 'GET /nope' not implemented", e.NotSupported),
    (595, "Connection refused", e.HostUnreachable),
    (596, "Connection timed out", e.HostUnreachable),
    (500, "hostname lookup 'x' failed - failed to get address info for: x", e.HostMissing),
    (500, "no such cluster node 'nosuch'", e.HostMissing),
    (500, "Target 'nosuch' does not exist.", e.HostMissing),
    (500, "cluster not ready - no quorum?", e.NoQuorum),
    (503, "Service Unavailable", e.Overloaded),
    (500, "QEMU guest agent is not running", e.AgentNotRunning),
    (500, "No QEMU guest agent configured", e.NotSupported),
    (500, "Agent error: Invalid parameter 'pid'", e.InvalidParameter),
    (500, "checksum mismatch (file change by other user?)", e.ConfigChanged),
    (500, "update storage failed: detected modified configuration - file changed by other user?",
     e.ConfigChanged),
    (500, "VM is locked (backup)", e.Locked),
    (0, "VM is locked (clone)", e.Locked),
    (500, "can't lock file '/var/lock/qemu-server/lock-9.conf' - got timeout", e.Locked),
    (500, "cfs-lock 'storage-x' error: got lock request timeout", e.Locked),
    (500, "can't remove VM 9 - protection mode enabled", e.Protected),
    (500, "only root can set 'args' config", e.PermissionDenied),
    (e.TASK, "Permission check failed (/vms/100, VM.Config.CDROM)", e.PermissionDenied),
    (500, "unable to remove VM 9 - used in HA resources and purge parameter not set.", e.InUse),
    (0, "base volume 'a:base-9-disk-0' is still in use by linked cloned", e.InUse),
    (500, "delete pool failed: pool 'p' is not empty (contains VM 9)", e.InUse),
    (500, "delete sdn zone object failed: zone z is used by vnet v at X.pm line 1.", e.InUse),
    (0, "unable to create image: No space left on device", e.StorageFull),
    (0, "lvcreate 'pve/vm-9-disk-0' error: insufficient free space", e.StorageFull),
    (400, "Parameter verification failed.\nupid: no such task", e.TaskMissing),
    (500, "Configuration file 'nodes/a/qemu-server/9.conf' does not exist", e.GuestMissing),
    (0, "unable to find configuration file for VM 9 on node 'a'", e.GuestMissing),
    (500, "could not find target VM 9", e.GuestMissing),
    (500, "unable to create VM 9: config file already exists", e.Exists),
    (400, "Parameter verification failed.\nvmid: VM 100 already exists", e.Exists),
    (500, "create resource failed: resource ID 'vm:9' already defined", e.Exists),
    (0, "snapshot name 'one' already used", e.Exists),
    (0, "close (rename) atomic file '/etc/pve/9.conf' failed: File exists", e.Exists),
    (500, "VM 9 is running - destroy failed", e.WrongState),
    (500, "VM 9 is not running", e.WrongState),
    (500, "CT 9 not running", e.WrongState),
    (0, "VM 9 already running", e.WrongState),
    (500, "VM is paused - cannot shutdown", e.WrongState),
    (500, "can't migrate running VM without --online", e.WrongState),
    (400, "Parameter verification failed.\nnet2: hotplug problem - x", e.HotplugRefused),
    (0, "volume 'shared:9/vm-9-pvc.raw' does not exist", e.VolumeMissing),
    (500, "volume_size_info on 'a:b' failed - no format", e.VolumeMissing),
    (500, "Linked clone feature is not supported for 'a:b' (scsi0)", e.NotSupported),
    (500, "can't clone VM to node 'a' (VM uses local storage)", e.NotSupported),
    (500, "cannot index groups: ha groups have been migrated to rules", e.NotSupported),
    (0, "shrinking disks is not supported", e.NotSupported),
    (0, "you can't start a vm if it's a template", e.NotSupported),
    (0, "MAX 2 vcpus allowed per VM on this node", e.NotSupported),
    (500, "storage 'nosuch' does not exist", e.ObjectMissing),
    (500, "no such resource 'vm:9'", e.ObjectMissing),
    (500, "cannot delete service 'vm:9', not HA managed!", e.ObjectMissing),
    (0, "start failed: QEMU exited with code 1", e.StartFailed),
    (0, "interrupted by signal", e.TaskAborted),
    (0, "VM quit/powerdown failed - got timeout", e.ShutdownTimedOut),
    (500, "command 'x' failed: got timeout", e.Overloaded),
    (400, "Parameter verification failed.", e.InvalidParameter),
    (500, "SSH public key validation error", e.InvalidParameter),
    (500, "no options specified", e.InvalidParameter),
    (500, "unable to parse volume filename 'x y'", e.InvalidParameter),
    (500, "you can't move a cdrom", e.InvalidParameter),
    (302, "Found", e.Redirected),
    (500, "something nobody has seen before", e.UnknownPveError),
]  # fmt: skip


@pytest.mark.parametrize(("status", "message", "error"), CASES)
def test_a_message_is_classified(status: int, message: str, error: type[e.PveError]) -> None:
    assert type(e.classify(status, message)) is error


def test_every_row_of_the_table_is_reached() -> None:
    reached = {id(e.find_pattern(status, message)) for status, message, _ in CASES}
    assert [row for row in e.TABLE if id(row) not in reached] == []


def test_every_class_is_reached_and_has_a_base() -> None:
    direct = {
        e.RegionUnreachable,
        e.OutcomeUnknown,
        e.UnreadableResponse,
    }  # raised by the transport itself
    classes = set(e.PveError.__subclasses__()) - {
        c for c in e.PveError.__subclasses__() if c.__module__ != e.__name__
    }
    assert {error for _, _, error in CASES} | direct == classes
    branches = (
        Unreachable, Busy, Conflict, Denied, Invalid, Missing, Unsupported, Retryable,
    )  # fmt: skip
    assert all(issubclass(c, branches) for c in classes)


def test_reasons_are_camel_case_words() -> None:
    assert all(c.reason.isalpha() and c.reason[0].isupper() for c in e.PveError.__subclasses__())


def test_the_error_text_includes_the_fields() -> None:
    body = {"data": None, "message": "Parameter verification failed.\n",
            "errors": {"memory": "value must be positive\n"}}  # fmt: skip
    error = e.from_response(400, "x", json.dumps(body).encode(), where="region r: PUT /x")
    assert str(error) == (
        "region r: PUT /x: Parameter verification failed. memory: value must be positive"
    )
    assert error.fields == {"memory": "value must be positive\n"}
    assert (error.status, error.where) == (400, "region r: PUT /x")


def test_fields_are_classified_too() -> None:
    body = b'{"message":"Parameter verification failed.","errors":{"vmid":"VM 100 already exists"}}'
    assert isinstance(e.from_response(400, "", body, where=""), e.Exists)


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"[]"])
def test_the_reason_phrase_replaces_an_empty_or_foreign_body(body: bytes) -> None:
    error = e.from_response(595, "Connection refused", body, where="")
    assert isinstance(error, e.HostUnreachable)
    assert error.message == "Connection refused"


@pytest.mark.parametrize("text", ["OK", "WARNINGS: 3"])
def test_a_successful_task_is_no_error(text: str) -> None:
    assert e.classify_exit(text) is None
