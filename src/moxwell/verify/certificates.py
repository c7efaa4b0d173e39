"""
Checks the clocks of hosts and the expiry of certificates. Pure.

A clock that differs by more than a few seconds breaks TLS and leader election. A certificate is
reported a month before it expires, or when a third of a shorter life is left: those of days are
renewed at half.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from moxwell.pki.serving import REMAINING
from moxwell.verify.findings import Finding, remark, unread, wrong
from moxwell.verify.model import Observation, Validity

EXPIRING = timedelta(days=30)
REMARK_SECONDS, WRONG_SECONDS = 5.0, 60.0


def clocks(observation: Observation) -> Iterator[Finding]:
    """The clock of every host agrees with ours."""
    for region in observation.regions.values():
        yield from unread(region.name, region.denied, "clocks")
        for host, ahead in sorted(region.clocks.items()):
            if abs(ahead) <= REMARK_SECONDS:
                continue
            way = "ahead of" if ahead > 0 else "behind"
            message = f"the clock of {host} in {region.name} is {abs(ahead):.0f} s {way} ours"
            do = "enable NTP on both (timedatectl set-ntp true)"
            finding = wrong if abs(ahead) > WRONG_SECONDS else remark
            yield finding("ClockSkewed", f"{region.name}/{host}", message, do)


def certificates(observation: Observation) -> Iterator[Finding]:
    """No certificate has expired or expires soon."""
    for region in observation.regions.values():
        yield from unread(region.name, region.denied, "certificates")
        found = {f"{region.name}/{host}": each for host, each in region.certificates.items()}
        do = "pvecm updatecerts --force on that host, or renew by ACME"
        yield from _expiries(observation.now, "the certificate of Proxmox host", found, do)
    for key, tenant in observation.tenant_clusters.items():
        found = {f"{key}: {name}": each for name, each in tenant.certificates.items()}
        do = "rotate it: annotation moxwell.dev/rotate of the TenantControlPlane, or as in Kamaji"
        yield from _expiries(observation.now, "a certificate of cluster", found, do)


def _expiries(
    now: datetime, what: str, found: Mapping[str, Validity], do: str
) -> Iterator[Finding]:
    for name, (since, until) in sorted(found.items()):
        day = f"{until:%Y-%m-%d}"
        if until <= now:
            yield wrong("CertificateExpired", name, f"{what} {name} expired on {day}", do)
        elif until - now <= min(EXPIRING, (until - since) * REMAINING):
            yield remark("CertificateExpiring", name, f"{what} {name} expires on {day}", do)
