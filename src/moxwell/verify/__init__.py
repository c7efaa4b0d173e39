"""
Compares Kubernetes objects with Proxmox and the tenant clusters; changes nothing.

:mod:`.collector` reads both sides, the other modules compare: pure functions from an
``Observation`` to findings. A disagreement is reported only if a second observation still shows
it, because both sides are never read at the same instant.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_args

from moxwell.clock import Clock
from moxwell.verify import certificates, guest_resources, guests, networks, objects, tenants
from moxwell.verify.findings import Finding, Level
from moxwell.verify.model import Observation

Check = Callable[[Observation], Iterator[Finding]]
CHECKS: dict[str, Check] = {
    "regions and clusters answer": tenants.reachable,
    "every guest with our mark has one owner": guests.owned,
    "no VMID is claimed twice": guests.claimed_once,
    "every machine has its guest": guests.present,
    "hardware matches the objects": guests.hardware_matches,
    "guests are in their zones": guests.in_zones,
    "bootstrap ISOs belong to booting machines": guest_resources.bootstrap_isos,
    "HA entries belong to guests": guest_resources.high_availability,
    "firewall groups are applied to their guests": guest_resources.firewall,
    "disks belong to guests": guest_resources.disks,
    "machines and their owners match": objects.machines,
    "node groups have their replicas": objects.counts,
    "claims and addresses have owners": objects.claims,
    "no address is allocated twice": objects.addresses,
    "nodes and machines match": tenants.nodes,
    "volumes and disks match": tenants.volumes,
    "networks of tenants, hosts and storages are separate": networks.separate,
    "clocks agree": certificates.clocks,
    "certificates are valid": certificates.certificates,
}
SECOND_LOOK_SECONDS = 6.0
_WORST_FIRST = ("wrong", "unknown", "remark")


def run_checks(observation: Observation) -> tuple[Finding, ...]:
    """Every finding, the worst first; a check without findings yields one of level ok."""
    rows: list[Finding] = []
    for title, check in CHECKS.items():
        found = list(check(observation))
        rows += found or [Finding("ok", "Agrees", title, title)]
    order = {level: at for at, level in enumerate((*_WORST_FIRST, "ok"))}
    return tuple(sorted(dict.fromkeys(rows), key=lambda f: order[f.level]))


async def verify(
    observe: Callable[[], Awaitable[Observation]], clock: Clock
) -> tuple[Finding, ...]:
    """Observe, and if anything is wrong again: a change in progress is no finding."""
    first = run_checks(await observe())
    if not any(f.level == "wrong" for f in first):
        return first
    await clock.sleep(SECOND_LOOK_SECONDS)
    second = run_checks(await observe())
    known = {(f.check, f.about) for f in first}
    return tuple(f for f in second if f.level != "wrong" or (f.check, f.about) in known)


async def report(observe: Callable[[], Awaitable[Observation]], clock: Clock) -> dict[str, Any]:
    """The findings as plain data, with the exit code of the command."""
    findings = await verify(observe, clock)
    levels = Counter(f.level for f in findings)
    return {
        "exitCode": exit_code(findings),
        "counts": {level: levels.get(level, 0) for level in get_args(Level)},
        "findings": [f.row() for f in findings],
    }


def exit_code(findings: tuple[Finding, ...]) -> int:
    """0 if both sides agree, 1 if they disagree, 75 if something could not be read."""
    levels = {f.level for f in findings}
    return 1 if "wrong" in levels else 75 if "unknown" in levels else 0
