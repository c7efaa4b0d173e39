"""
Recorded responses of the real Proxmox: the client's types decode them, the error table matches.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moxwell.pve import caller, errors
from moxwell.pve.client import PveWriter
from moxwell.pve.values import Upid
from moxwell.testing.scripted_transport import ScriptedTransport

FOLDER = Path(__file__).parents[2] / "conformance" / "recordings"

UPID = "UPID:node1:00004567:0007F9A7:6AFA244C:resize:9360:root@pam:"
# Messages of unusual requests, for which a class of their own would not help.
UNCLASSED = (
    r"auto-generated role", r"cannot lookup undefined type", r"only backups can have notes",
    r"user != root@pam", r"ineffective", r"download failed", r"command '.*' failed: exit code",
)  # fmt: skip


@cache
def steps() -> tuple[tuple[str, dict[str, Any]], ...]:
    found = []
    for path in sorted(FOLDER.glob("*/*.json")):
        for step in json.loads(path.read_text())["steps"]:
            found.append((f"{path.parent.name}/{path.stem}", step))
    return tuple(found)


def answers() -> Iterator[tuple[str, str, str, Any]]:
    """Yield (file, method, path, data) of all recorded responses with status 200."""
    for where, step in steps():
        expect = step.get("expect", {})
        do, _, path = step["do"].partition(" ")
        if expect.get("status") == 200 and not path.startswith("/api2") and "columns" not in step:
            yield where, do, path.partition("?")[0], expect.get("data")


READERS: list[tuple[str, str, Any]] = [
    (r"/version", "cluster.version", ()),
    (r"/cluster/resources", "cluster.resources", ()),
    (r"/cluster/status", "cluster.status", ()),
    (r"/cluster/nextid", "cluster.nextid", ()),
    (r"/cluster/tasks", "cluster.tasks", ()),
    (r"/cluster/replication", "replication.list", ()),
    (r"/cluster/ha/resources", "ha.resources", ()),
    (r"/cluster/ha/resources/[^/]+", "ha.resource", ("vm:1",)),
    (r"/cluster/ha/groups", "ha.groups", ()),
    (r"/cluster/ha/rules", "ha.rules", ()),
    (r"/cluster/ha/rules/[^/]+", "ha.rule", ("r",)),
    (r"/cluster/sdn/zones", "sdn.zones", ()),
    (r"/cluster/sdn/vnets", "sdn.vnets", ()),
    (r"/cluster/sdn/vnets/[^/]+/subnets", "sdn.subnets", ("v",)),
    (r"/cluster/firewall/groups", "firewall.groups", ()),
    (r"/cluster/firewall/groups/[^/]+", "firewall.group_rules", ("g",)),
    (r"/nodes", "nodes.list", ()),
    (r"/nodes/[^/]+/status", "nodes.status", ("n",)),
    (r"/nodes/[^/]+/network", "nodes.network", ("n",)),
    (r"/nodes/[^/]+/storage", "nodes.storages", ("n",)),
    (r"/nodes/[^/]+/storage/[^/]+/status", "storage.status", ("n", "s")),
    (r"/nodes/[^/]+/storage/[^/]+/content", "storage.content", ("n", "s")),
    (r"/nodes/[^/]+/storage/[^/]+/content/.+", "storage.volume", ("n", "s", "v")),
    (r"/storage", "storage.definitions", ()),
    (r"/nodes/[^/]+/qemu", "qemu.list", ("n",)),
    (r"/nodes/[^/]+/lxc", "lxc.list", ("n",)),
    (r"/nodes/[^/]+/qemu/\d+/config", "qemu.config", ("n", 1)),
    (r"/nodes/[^/]+/lxc/\d+/config", "lxc.config", ("n", 1)),
    (r"/nodes/[^/]+/qemu/\d+/pending", "qemu.pending", ("n", 1)),
    (r"/nodes/[^/]+/lxc/\d+/pending", "lxc.pending", ("n", 1)),
    (r"/nodes/[^/]+/qemu/\d+/status/current", "qemu.status", ("n", 1)),
    (r"/nodes/[^/]+/lxc/\d+/status/current", "lxc.status", ("n", 1)),
    (r"/nodes/[^/]+/qemu/\d+/snapshot", "snapshots.list", ("n", 1)),
    (r"/nodes/[^/]+/qemu/\d+/firewall/options", "firewall.options", ("n", 1)),
    (r"/nodes/[^/]+/qemu/\d+/firewall/rules", "firewall.rules", ("n", 1)),
    (r"/nodes/[^/]+/qemu/\d+/agent/network-get-interfaces", "agent.interfaces", ("n", 1)),
    (r"/nodes/[^/]+/qemu/\d+/agent/file-read", "agent.read_file", ("n", 1, "f")),
    (r"/nodes/[^/]+/tasks", "tasks.list", ("n",)),
    (r"/nodes/[^/]+/tasks/[^/]+/status", "tasks.status", (Upid(UPID),)),
    (r"/nodes/[^/]+/tasks/[^/]+/log", "tasks.log", (Upid(UPID),)),
    (r"/pools", "pools.list", ()),
    (r"/pools/[^/]+", "pools.get", ("p",)),
    (r"/access/permissions", "access.permissions", ()),
    (r"/access/users", "access.users", ()),
    (r"/access/users/[^/]+/token", "access.tokens", ("u",)),
    (r"/access/roles", "access.roles", ()),
    (r"/access/acl", "access.acl", ()),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "method", "arguments"), READERS, ids=lambda v: str(v)[:60])
def test_recorded_responses_are_decoded(
    pattern: str, method: str, arguments: tuple[Any, ...]
) -> None:
    group, _, name = method.partition(".")
    tried = 0
    for where, verb, path, data in answers():
        if verb == "GET" and re.fullmatch(pattern, path):
            tried += 1
            pve = PveWriter(ScriptedTransport(lambda *_, data=data: data))
            try:
                finish(getattr(getattr(pve, group), name)(*arguments))
            except errors.UnknownPveError as error:
                pytest.fail(f"{where}: {error} in {json.dumps(data)[:300]}")
    assert tried, "nothing was recorded for it"


def finish(coroutine: Any) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


def refusals() -> Iterator[tuple[str, int, str, dict[str, str] | None]]:
    for where, step in steps():
        expect = step.get("expect", {})
        if expect.get("status", 0) >= 400:
            text = expect.get("message") or expect.get("reason") or ""
            yield where, expect["status"], text, expect.get("errors")
        task = expect.get("task") or {}
        if task.get("exitstatus", "OK") != "OK" and task.get("exitstatus"):
            yield where, errors.TASK, str(task["exitstatus"]), None


def test_every_recorded_error_is_classified() -> None:
    unexplained = {
        text
        for _, status, text, fields in refusals()
        if isinstance(errors.classify(status, text, fields=fields), errors.UnknownPveError)
        and not any(re.search(pattern, text) for pattern in UNCLASSED)
    }
    assert unexplained == set()


def test_every_recorded_task_is_a_upid() -> None:
    upids = {
        data for _, _, _, data in answers() if isinstance(data, str) and data.startswith("UPID:")
    }
    assert len(upids) > 500
    for text in upids:
        assert Upid(text).host


def test_data_of_another_type_is_an_error() -> None:
    with pytest.raises(errors.UnknownPveError):
        caller.decode(int, msgspec.json.encode({"data": "x"}), "/x")
