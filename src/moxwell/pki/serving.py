"""
A serving certificate with a CA of its own, and the bundle of CAs that its clients must trust. Pure.

A new CA is announced before it is used: for a while the bundle holds the new and the old one, so
that clients accept a replica that still serves the old certificate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair

CA_NAME = "moxwell-webhooks"
REMAINING = 1 / 3  # of its lifetime, when a certificate is renewed


@dataclass(frozen=True, slots=True)
class ServingCertificates:
    """What replicas share: the CA, the certificate it signed, and the bundle of trusted CAs."""

    ca: KeyPair
    serving: KeyPair
    bundle: bytes


def renew(
    current: ServingCertificates | None, names: Sequence[str], now: datetime
) -> ServingCertificates:
    """The certificates to use from ``now`` on; ``current`` itself while nothing is due."""
    if current is None or _is_due(current.ca, now, certificates.CA_LIFETIME):
        ca = certificates.create_ca(CA_NAME, now)
        old = current.ca.certificate if current else b""
        return ServingCertificates(ca, issue(ca, names, now), ca.certificate + old)
    if _is_due(current.serving, now, certificates.LEAF_LIFETIME) or not _covers(current, names):
        return replace(current, serving=issue(current.ca, names, now))
    return current


def issue(ca: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """A serving certificate for these host names and addresses."""
    config = CertificateConfig(common_name=names[0][:64], alt_names=tuple(names), client_auth=False)
    return certificates.issue(config, ca, now)


def is_usable(found: ServingCertificates) -> bool:
    """Whether both keys belong to their certificates; ValueError if any cannot be read."""
    return certificates.matches(found.ca) and certificates.matches(found.serving)


def _is_due(pair: KeyPair, now: datetime, lifetime: timedelta) -> bool:
    return now > certificates.expires(pair.certificate) - lifetime * REMAINING


def _covers(found: ServingCertificates, names: Sequence[str]) -> bool:
    return set(names) <= certificates.alt_names(found.serving.certificate)
