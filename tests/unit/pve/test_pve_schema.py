"""Every path and parameter that the client can send is in both API schemas."""

import inspect
import json
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from moxwell.pve.client import PveWriter
from moxwell.pve.endpoints.firewall import FirewallRule
from moxwell.pve.targets import target_of
from moxwell.pve.transport import FileUpload
from moxwell.pve.values import SecretValue, Upid
from moxwell.testing.scripted_transport import ScriptedTransport

FOLDER = Path(__file__).parents[4] / "shared" / "pve"
SCHEMAS = {"8.4": FOLDER / "api-8.4.json", "9.1": FOLDER / "api-9.1.json"}
GROUPS = (
    "cluster", "nodes", "qemu", "lxc", "agent", "snapshots", "storage", "tasks", "pools",
    "access", "ha", "sdn", "firewall", "replication",
)  # fmt: skip
ONLY_9 = re.compile(r"/cluster/ha/rules(/.*)?")  # HA rules replaced HA groups
UPID = Upid("UPID:pve1:000039FE:0007D90C:6AFA23F8:qmstart:100:u@pve:")
RULE = FirewallRule(
    type="in", action="ACCEPT", pos=0, enable=1, macro="SSH", proto="tcp", source="10.0.0.0/8",
    dest="10.0.0.1", sport="1", dport="2", iface="net0", log="info", comment="c", icmp_type="0",
)  # fmt: skip
# Keys for the open-ended parameters: every key that Moxwell uses.
QEMU_KEYS = (
    "name", "description", "tags", "cores", "sockets", "vcpus", "memory", "balloon", "cpu", "numa",
    "numa0", "hugepages", "affinity", "net0", "net31", "ipconfig0", "scsi0", "scsi30", "virtio15",
    "sata5", "ide0", "ide2", "unused0", "efidisk0", "tpmstate0", "scsihw", "bios", "machine",
    "ostype", "boot", "agent", "smbios1", "vmgenid", "serial0", "vga", "onboot", "protection",
    "hotplug", "hostpci0", "rng0", "ciuser", "cipassword", "sshkeys", "nameserver", "searchdomain",
    "cicustom", "citype", "startup", "args", "cpulimit", "cpuunits", "template", "kvm", "arch",
)  # fmt: skip
OPEN: Mapping[tuple[str, str], Sequence[str]] = {
    ("qemu", "create"): (*QEMU_KEYS, "pool", "start", "storage"),
    ("qemu", "configure"): QEMU_KEYS,
    ("qemu", "configure_task"): (*QEMU_KEYS, "import-working-storage"),
    ("firewall", "set_options"): ("enable", "dhcp", "policy_in", "policy_out", "ipfilter",
                                  "macfilter", "log_level_in"),
}  # fmt: skip


class Sent(Exception):
    """Ends a method after its only request."""


def argument(hint: Any, keys: Sequence[str]) -> Iterator[Any]:
    """Yield values for an annotation; several where each gives another path."""
    options = [h for h in get_args(hint) if h is not type(None)]
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif get_origin(hint) is Mapping or hint is typing.Mapping:
        yield dict.fromkeys(keys, "1")
    elif get_origin(hint) is Sequence:
        yield (7,) if get_args(hint) == (int,) else ("a", "b")
    elif options and type(None) in get_args(hint):
        yield from argument(options[0], keys)
    else:
        yield {
            str: "x", int: 1, float: 1.5, bool: True, Upid: UPID, SecretValue: SecretValue("s"),
            FirewallRule: RULE,
            FileUpload: FileUpload.of("a.iso", b""),
        }[hint]  # fmt: skip


def calls() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return what every method of every group sends with all parameters set."""
    found: list[tuple[str, str, str, dict[str, Any]]] = []
    for group in GROUPS:
        for name, method in inspect.getmembers(
            type(getattr(PveWriter(ScriptedTransport(lambda *_: Sent())), group)),
            inspect.iscoroutinefunction,
        ):
            if not name.startswith("_"):
                found.extend(sent_by(group, name, method))
    return found


def sent_by(group: str, name: str, method: Any) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    hints = typing.get_type_hints(method)
    names = [n for n in inspect.signature(method).parameters if n != "self"]
    keys = OPEN.get((group, name), ())
    kinds = get_args(hints["kind"]) if "kind" in hints else (None,)
    for kind in kinds:
        given = {n: next(argument(hints[n], keys)) for n in names}
        if kind:
            given["kind"] = kind
        transport = ScriptedTransport(lambda *_: Sent())
        with pytest.raises(Sent):
            drive(getattr(getattr(PveWriter(transport), group), name)(**given))
        ((verb, path, params),) = transport.sent
        yield f"{group}.{name}", "POST" if verb == "UPLOAD" else verb, path, params


def drive(coroutine: Any) -> None:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    finally:
        coroutine.close()


def template(api: Mapping[str, Any], path: str) -> str | None:
    """Return the schema's path for a path; literal parts win over placeholders."""
    parts = path.strip("/").split("/")
    fits = [t for t in api if matches(t.strip("/").split("/"), parts)]
    return min(fits, key=lambda t: t.count("{"), default=None)


def matches(template: list[str], parts: list[str]) -> bool:
    if template and template[-1] == "{volume}":
        head = template[:-1]
        return len(parts) > len(head) and matches(head, parts[: len(head)])
    return len(template) == len(parts) and all(
        t.startswith("{") or t == p for t, p in zip(template, parts, strict=True)
    )


def complaints(api: Mapping[str, Any], sent: tuple[str, str, str, dict[str, Any]]) -> Iterator[str]:
    who, verb, path, params = sent
    found = template(api, path)
    if found is None or verb not in api[found]:
        yield f"{who}: {verb} {path} is not there"
        return
    known = api[found][verb].get("parameters", {})
    for name in params:
        if name not in known and re.sub(r"\d+$", "[n]", name) not in known:
            yield f"{who}: {verb} {found} does not take {name}"
    given = {*params, *re.findall(r"{([^}]+)}", found)}
    for name, rule in known.items():
        if not rule.get("optional") and name not in given:
            yield f"{who}: {verb} {found} wants {name}"


@pytest.mark.skipif(not FOLDER.exists(), reason="the API schemas are not here")
@pytest.mark.parametrize("release", SCHEMAS)
def test_everything_that_can_be_sent_is_in_the_schema(release: str) -> None:
    api = json.loads(SCHEMAS[release].read_text())["api"]
    sent = calls()
    if release == "8.4":
        sent = [call for call in sent if not ONLY_9.fullmatch(call[2])]
    assert [text for call in sent for text in complaints(api, call)] == []


def test_every_method_sends_exactly_one_request() -> None:
    names = {who for who, *_ in calls()}
    assert len(names) > 100  # a method that is not found would not be checked


def test_every_write_names_what_it_changes() -> None:
    writes = [call for call in calls() if call[1] != "GET"]
    assert len(writes) > 50
    unnamed = set()
    for who, verb, path, params in writes:
        guest = "vm:7" if "/ha/" in path else "7-0"
        named = path.replace("/x", f"/{guest}")
        target = target_of(verb, named, {**params, "id": "7-0", "sid": "vm:7"})
        if not (target.vmids or target.volume or target.name):
            unnamed.add(who)
    assert unnamed == set()
