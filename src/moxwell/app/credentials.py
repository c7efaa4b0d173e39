"""
Rotates and revokes client certificates of an instance.

Both only write files of the instance: the API servers read the revocation list of their CA for
every request, so that the daemon need not run.
"""

from pathlib import Path

import yaml
from cryptography.exceptions import InvalidSignature

from moxwell.app.state_dir import StateDir
from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.errors import Invalid, Missing
from moxwell.kube import kubeconfig_writer
from moxwell.pki.certificates import load_certificate
from moxwell.pki.folder import CertificateAuthority

MANAGEMENT = "the management API"


class NoClientCertificate(Invalid):
    """A file holds no client certificate of the instance."""

    reason = "NoClientCertificate"


def rotate_kubeconfig(state: StateDir, clock: Clock) -> Path:
    """Write a new administrator's kubeconfig and revoke the old one; returns its path."""
    path = state.kubeconfig
    if not path.exists():
        raise Missing(f"instance {state.name!r} has no kubeconfig yet: start it with `moxwell up`")
    text = path.read_text()
    old = kubeconfig_writer.client_certificate(text)
    authority = CertificateAuthority(state.pki, clock.now)
    if old is not None:
        authority.revoke(old)
    pair = authority.administrator()
    assert pair is not None, "it is always created without a current one"
    url = yaml.safe_load(text)["clusters"][0]["cluster"]["server"]
    made = kubeconfig_writer.render(url, authority.certificate, pair, "moxwell")
    write_private(path, made.encode())
    return path


def revoke_certificate(state: StateDir, file: Path, clock: Clock) -> str:
    """Revoke the client certificate of a file at the CA that issued it; returns whose CA it is."""
    certificate = _certificate(file)
    for name, pki in _authorities(state):
        if _issued(pki / "ca.crt", certificate):
            CertificateAuthority(pki, clock.now).revoke(certificate)
            return name
    raise NoClientCertificate(
        f"{file} holds no certificate that an embedded API server of this instance issued;"
        " certificates of control planes from binaries end after seven days"
    )


def _authorities(state: StateDir) -> list[tuple[str, Path]]:
    tenants = sorted(state.control_planes.glob("*/*/pki/ca.crt"))
    named = [(f"{p.parents[2].name}/{p.parents[1].name}", p.parent) for p in tenants]
    return [(MANAGEMENT, state.pki), *named]


def _certificate(file: Path) -> bytes:
    text = file.read_text(errors="replace")
    if text.startswith("-----BEGIN CERTIFICATE-----"):
        return text.encode()
    found = kubeconfig_writer.client_certificate(text)
    if found is None:
        raise NoClientCertificate(
            f"{file} is neither a kubeconfig with a client certificate nor a certificate in PEM"
        )
    return found


def _issued(ca: Path, certificate: bytes) -> bool:
    if not ca.exists():
        return False
    try:
        authority = load_certificate(ca.read_bytes())
        load_certificate(certificate).verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
