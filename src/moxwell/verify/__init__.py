"""
``moxwell verify``: is what is there what the objects say? In Kubernetes and in Proxmox.

:mod:`.gather` looks at both sides, the other modules compare: pure functions from a ``World`` to
findings. Nothing is changed, ever. A disagreement counts only if a second look still shows it,
because two lists are never read at the same instant.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_args

from moxwell.clock import Clock
from moxwell.verify import certificates, guest_resources, guests, objects, tenants
from moxwell.verify.findings import Finding, Level
from moxwell.verify.model import World

Check = Callable[[World], Iterator[Finding]]
CHECKS: dict[str, Check] = {
    "everything answers": tenants.reached,
    "every guest of ours has one owner": guests.owned,
    "no id is claimed twice": guests.claimed_once,
    "every machine has its guest": guests.present,
    "hardware is as the objects say": guests.hardware_as_said,
    "guests are in their zones": guests.placed,
    "seed disks belong to machines that boot": guest_resources.seeds,
    "HA entries belong to guests": guest_resources.high_availability,
    "firewall groups are around their guests": guest_resources.firewall,
    "disks belong to guests": guest_resources.disks,
    "machines and their owners match": objects.machines,
    "groups have the machines they ask for": objects.counts,
    "claims and addresses have owners": objects.claims,
    "no address was given twice": objects.addresses,
    "nodes and machines match": tenants.nodes,
    "volumes and disks match": tenants.volumes,
    "clocks agree": certificates.clocks,
    "certificates are valid": certificates.certificates,
}
SETTLE_SECONDS = 6.0
_WORST = ("wrong", "unknown", "remark")


def judge(world: World) -> tuple[Finding, ...]:
    """Every finding, the worst first; a check that found nothing says so."""
    rows: list[Finding] = []
    for title, check in CHECKS.items():
        found = list(check(world))
        rows += found or [Finding("ok", "Agrees", title, title)]
    order = {level: at for at, level in enumerate((*_WORST, "ok"))}
    return tuple(sorted(dict.fromkeys(rows), key=lambda f: order[f.level]))


async def verify(look: Callable[[], Awaitable[World]], clock: Clock) -> tuple[Finding, ...]:
    """Look, and if anything is wrong look again: what was only under way is no finding."""
    first = judge(await look())
    if not any(f.level == "wrong" for f in first):
        return first
    await clock.sleep(SETTLE_SECONDS)
    second = judge(await look())
    known = {(f.check, f.about) for f in first}
    return tuple(f for f in second if f.level != "wrong" or (f.check, f.about) in known)


async def report(look: Callable[[], Awaitable[World]], clock: Clock) -> dict[str, Any]:
    """The findings as plain data, with the exit code of the command."""
    findings = await verify(look, clock)
    levels = Counter(f.level for f in findings)
    return {
        "exitCode": exit_code(findings),
        "counts": {level: levels.get(level, 0) for level in get_args(Level)},
        "findings": [f.row() for f in findings],
    }


def exit_code(findings: tuple[Finding, ...]) -> int:
    """0 all agrees; 1 the sides disagree; 75 not everything could be looked at."""
    levels = {f.level for f in findings}
    return 1 if "wrong" in levels else 75 if "unknown" in levels else 0
