"""
Certificates and clocks: what breaks everything on a day nobody looks. Pure.

A host whose clock is off by more than a few seconds fails certificates and leader election before
anybody thinks of clocks; certificates are said a month before they end.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from moxwell.verify.findings import Finding, remark, unread, wrong
from moxwell.verify.model import World

SOON = timedelta(days=30)
ODD_SECONDS, BAD_SECONDS = 5.0, 60.0


def clocks(world: World) -> Iterator[Finding]:
    """Every host has our time."""
    for region in world.regions.values():
        yield from unread(region.name, region.denied, "clocks")
        for host, ahead in sorted(region.clocks.items()):
            if abs(ahead) <= ODD_SECONDS:
                continue
            way = "ahead of" if ahead > 0 else "behind"
            said = f"the clock of {host} in {region.name} is {abs(ahead):.0f} s {way} ours"
            do = "let chrony run on both (timedatectl set-ntp true)"
            tell = wrong if abs(ahead) > BAD_SECONDS else remark
            yield tell("ClockSkewed", f"{region.name}/{host}", said, do)


def certificates(world: World) -> Iterator[Finding]:
    """No certificate has run out, or is about to."""
    for region in world.regions.values():
        yield from unread(region.name, region.denied, "certificates")
        found = {f"{region.name}/{host}": at for host, at in region.certificates.items()}
        do = "pvecm updatecerts --force on that host, or renew by ACME"
        yield from _judged(world.now, "the certificate of Proxmox host", found, do)
    for key, tenant in world.inside.items():
        found = {f"{key}: {name}": at for name, at in tenant.certificates.items()}
        do = "rotate it: moxwell.dev/rotate on the TenantControlPlane, or kamaji's rotation"
        yield from _judged(world.now, "a certificate of cluster", found, do)


def _judged(now: datetime, what: str, found: Mapping[str, datetime], do: str) -> Iterator[Finding]:
    for name, until in sorted(found.items()):
        day = f"{until:%Y-%m-%d}"
        if until <= now:
            yield wrong("CertificateExpired", name, f"{what} {name} ran out on {day}", do)
        elif until - now <= SOON:
            yield remark("CertificateEnding", name, f"{what} {name} ends on {day}", do)
