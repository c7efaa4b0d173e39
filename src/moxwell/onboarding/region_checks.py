"""Checks whether machines could be made in a region, each with what to do about a failure. Pure."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from moxwell.errors import Denied, MoxwellError
from moxwell.onboarding.region_facts import RegionFacts, TemplateFacts
from moxwell.pve import preflight
from moxwell.pve.errors import PermissionDenied
from moxwell.pve.preflight import Feature

MIN_MAJOR, MAX_MAJOR = 8, 9
SKEW_WARN_SECONDS, SKEW_FAIL_SECONDS = 5.0, 60.0
MIN_FREE_PART = 0.1
MIN_FREE_VMIDS = 100
GUEST_CPUS, GUEST_BYTES = 2, 2 << 30
_VERSION = re.compile(r"\d+\.\d+\.\d+")


class CheckLevel(StrEnum):
    """The outcome of a check; with a failure no cluster can be made."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class RegionCheck:
    """The outcome of one check and, unless it passed, what to do."""

    level: CheckLevel
    name: str
    what: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class RegionNeeds:
    """What the region is wanted for."""

    features: tuple[Feature, ...] = preflight.FEATURES
    bridge: str = "vmbr0"
    vlans: bool = False
    vmids: range = range(10000, 100000)


def check_region(facts: RegionFacts, needs: RegionNeeds) -> tuple[RegionCheck, ...]:
    """All checks of a region, the most basic first."""
    if facts.error is not None:
        return _unreadable(facts, facts.error, needs)
    found = [
        *_connection(facts),
        *_release(facts),
        *_privileges(facts, needs.features),
        *_quorum(facts),
        *_clocks(facts),
        *_storages(facts),
        *_bridges(facts, needs),
        *_templates(facts),
        *_room(facts, needs),
    ]
    return tuple(found)


def could_make_cluster(checks: Iterable[RegionCheck]) -> bool:
    return all(check.level is not CheckLevel.FAIL for check in checks)


def _pass(name: str, what: str) -> RegionCheck:
    return RegionCheck(CheckLevel.PASS, name, what)


def _warn(name: str, what: str, do: str) -> RegionCheck:
    return RegionCheck(CheckLevel.WARN, name, what, do)


def _fail(name: str, what: str, do: str) -> RegionCheck:
    return RegionCheck(CheckLevel.FAIL, name, what, do)


def _unreadable(
    facts: RegionFacts, error: MoxwellError, needs: RegionNeeds
) -> tuple[RegionCheck, ...]:
    if isinstance(error, PermissionDenied):
        known = _privileges(facts, needs.features) if facts.version else ()
        failed = [check for check in known if check.level is CheckLevel.FAIL]
        do = "run `moxwell init`, or `moxwell init --print` for the pveum commands"
        return (*failed, _fail("privileges", f"the token may not read the region: {error}", do))
    if isinstance(error, Denied):
        do = "create the token again with `moxwell init`, or correct token_id and token_secret"
        return (_fail("login", f"the login is refused: {error}", do),)
    do = "check url, fingerprint or ca_file in the configuration, and the network"
    return (_fail("reachability", f"no answer: {error}", do),)


def _connection(facts: RegionFacts) -> Iterable[RegionCheck]:
    yield _pass("reachability", f"answers at {facts.urls[0]}")
    if facts.insecure or facts.urls[0].startswith("http://"):
        do = "set fingerprint, or ca_file, and remove insecure"
        yield _warn("tls", "the certificate is not verified", do)
    else:
        yield _pass("tls", "the certificate is " + ("pinned" if facts.pinned else "verified"))
    if len(facts.hosts) > 1 and len(facts.urls) == 1:
        do = "list the URLs of several hosts: urls: [https://…, https://…]"
        yield _warn("urls", "only one host is configured; if it fails, the region is lost", do)
    if facts.user.startswith("root@pam"):
        do = "use a user of its own with least privileges: `moxwell init`"
        yield _warn("user", "root@pam is used", do)


def _release(facts: RegionFacts) -> Iterable[RegionCheck]:
    if facts.major < MIN_MAJOR:
        yield _fail("version", f"Proxmox VE {facts.version} is too old", "upgrade to 8 or newer")
    elif facts.major > MAX_MAJOR:
        yield _warn(
            "version", f"Proxmox VE {facts.version} is newer than what was tried", "try it first"
        )
    else:
        yield _pass("version", f"Proxmox VE {facts.version}")


def _privileges(facts: RegionFacts, features: Collection[Feature]) -> Iterable[RegionCheck]:
    missing = preflight.missing(facts.permissions, max(facts.major, MIN_MAJOR), features)
    by_path: dict[str, list[str]] = {}
    for need in missing:
        by_path.setdefault(need.path, []).append(need.privilege)
    for path, privileges in sorted(by_path.items()):
        do = "run `moxwell init`, or `moxwell init --print` for the pveum commands"
        yield _fail("privileges", f"the token lacks {' '.join(privileges)} on {path}", do)
    if not missing:
        yield _pass("privileges", "the token has all privileges")


def _quorum(facts: RegionFacts) -> Iterable[RegionCheck]:
    if facts.quorate is False:
        yield _fail("quorum", "the cluster has no quorum and refuses changes", "start more hosts")
    offline = [name for name, online in sorted(facts.hosts.items()) if not online]
    if offline:
        do = "start them; machines there are kept"
        yield _warn("hosts", f"hosts that do not answer: {', '.join(offline)}", do)
    elif facts.quorate is not False:
        yield _pass("quorum", f"{len(facts.hosts)} hosts answer")


def _clocks(facts: RegionFacts) -> Iterable[RegionCheck]:
    worst = max(facts.skews.items(), key=lambda item: abs(item[1]), default=("", 0.0))
    text = f"the clock of {worst[0]} differs by {abs(worst[1]):.0f} s"
    do = "set up time synchronization (chrony) on the hosts and here"
    if abs(worst[1]) > SKEW_FAIL_SECONDS:
        yield _fail("clock", text, do)
    elif abs(worst[1]) > SKEW_WARN_SECONDS:
        yield _warn("clock", text, do)
    else:
        yield _pass("clock", "the clocks agree")


def _storages(facts: RegionFacts) -> Iterable[RegionCheck]:
    for host, rows in sorted(facts.storages.items()):
        usable = [row for row in rows if row.active and row.enabled]
        for content, purpose in (("images", "disks"), ("iso", "bootstrap ISOs")):
            if not any(row.accepts(content) for row in usable):
                do = f"add the content type {content} to a storage of {host}: pvesm set"
                yield _fail("storage", f"{host} has no active storage for {purpose}", do)
    seen: set[str] = set()
    for host, rows in sorted(facts.storages.items()):
        for row in rows:
            if row.storage in seen or not row.enabled:
                continue
            if not row.active:
                yield _warn("storage", f"{row.storage} is not active on {host}", "mount it")
            elif row.total and row.avail < row.total * MIN_FREE_PART:
                text = f"{row.storage} on {host} is {1 - row.avail / row.total:.0%} full"
                yield _warn("storage", text, "free space or extend it")
            else:
                continue
            if row.shared:
                seen.add(row.storage)


def _bridges(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    for host, rows in sorted(facts.bridges.items()):
        found = next((row for row in rows if row.iface == needs.bridge), None)
        if found is None:
            do = f"create {needs.bridge} on {host}, or name another bridge in the machines"
            yield _fail("network", f"{host} has no bridge {needs.bridge}", do)
        elif needs.vlans and not found.bridge_vlan_aware:
            do = "set 'VLAN aware' on the bridge"
            yield _warn("network", f"{needs.bridge} of {host} takes no VLAN tags", do)
    if facts.bridges and all(
        any(r.iface == needs.bridge for r in v) for v in facts.bridges.values()
    ):
        yield _pass("network", f"{needs.bridge} exists on all hosts")


def _templates(facts: RegionFacts) -> Iterable[RegionCheck]:
    if not facts.templates:
        do = "make one: moxwell template build NAME ubuntu-24.04 --kubernetes VERSION --install"
        yield _fail("templates", "there is no template to clone", do)
        return
    for template in facts.templates:
        yield from _template(template)
    if not any(_VERSION.search(text) for t in facts.templates for text in (*t.tags, t.name)):
        do = "tag the templates with their version: qm set VMID --tags k8s-1.36.3"
        yield _warn("templates", "no template has a Kubernetes version in its tags or name", do)


def _template(template: TemplateFacts) -> Iterable[RegionCheck]:
    who = f"template {template.vmid} {template.name}"
    agent = template.config.get("agent", "0")
    if agent[:1] not in ("1",) and "enabled=1" not in agent:
        do = f"qm set {template.vmid} --agent enabled=1, and install qemu-guest-agent in it"
        yield _warn("templates", f"{who} has no guest agent", do)
    if not template.config.get("scsihw", "").startswith("virtio-scsi"):
        do = f"qm set {template.vmid} --scsihw virtio-scsi-single"
        yield _warn("templates", f"{who}: volumes need the SCSI controller virtio-scsi", do)


def _room(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    free = len(needs.vmids) - sum(vmid in needs.vmids for vmid in facts.vmids)
    shown = f"{needs.vmids.start} to {needs.vmids.stop - 1}"
    if free < 1:
        yield _fail("vmids", f"no VMID from {shown} is free", "configure another range")
    elif free < MIN_FREE_VMIDS:
        yield _warn("vmids", f"{free} VMIDs from {shown} are free", "configure another range")
    if facts.free and not any(
        cpus >= GUEST_CPUS and memory >= GUEST_BYTES for cpus, memory in facts.free.values()
    ):
        do = "stop guests or add a host"
        yield _fail("capacity", "no host has 2 CPUs and 2 GiB of memory for a guest", do)
    else:
        yield _pass("capacity", f"{free} VMIDs and memory are free")
