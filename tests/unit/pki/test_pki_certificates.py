"""Certificates: when they are renewed, what they are valid for, and which keys stay."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair
from moxwell.pki.folder import CertificateAuthority, CertificateFolder

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CA, OTHER = certificates.create_ca("kubernetes", NOW), certificates.create_ca("kubernetes", NOW)
SERVER = CertificateConfig(
    common_name="api", alt_names=("10.0.0.1", "api.local"), client_auth=False
)
ISSUED = certificates.issue(SERVER, CA, NOW)


class Days:
    """A clock that is moved by days."""

    def __init__(self) -> None:
        self.days = 0

    def now(self) -> datetime:
        return NOW + timedelta(days=self.days)


@pytest.mark.parametrize(
    "days, config, ca, why",
    [
        pytest.param(0, SERVER, CA, "", id="fresh"),
        pytest.param(334, SERVER, CA, "", id="a month and a day left"),
        pytest.param(336, SERVER, CA, "expires", id="less than a month left"),
        pytest.param(5000, SERVER, CA, "expires", id="long over"),
        pytest.param(
            1,
            CertificateConfig(common_name="api", alt_names=("10.0.0.1", "new"), client_auth=False),
            CA,
            "names",
            id="a name",
        ),
        pytest.param(
            1,
            CertificateConfig(common_name="api", alt_names=("10.0.0.1",)),
            CA,
            "",
            id="a name too many",
        ),
        pytest.param(1, SERVER, OTHER, "issuer", id="another CA of the same name"),
    ],
)
def test_when_a_certificate_is_renewed(
    days: int, config: CertificateConfig, ca: KeyPair, why: str
) -> None:
    now = NOW + timedelta(days=days)
    assert certificates.renewal_reason(ISSUED.certificate, config, ca, now) == why
    again = certificates.renew(ISSUED, config, ca, now)
    assert (again is ISSUED) == (not why)
    assert not certificates.renewal_reason(again.certificate, config, ca, now)


@pytest.mark.parametrize(
    "days, longer",
    [
        pytest.param(0, False, id="fresh"),
        pytest.param(3650 - 731, False, id="two years and a day left"),
        pytest.param(3650 - 729, True, id="less than two years left"),
        pytest.param(5000, True, id="long over"),
    ],
)
def test_a_ca_is_extended_under_the_same_key(days: int, longer: bool) -> None:
    now = NOW + timedelta(days=days)
    after = certificates.extend_ca(CA, now)
    assert (after is not CA) == longer
    assert after.key == CA.key
    assert certificates.expires(after.certificate) > NOW + timedelta(days=3649)
    assert not longer or certificates.expires(after.certificate) == now + timedelta(days=3650)


def test_old_and_extended_ca_accept_the_same_leaves() -> None:
    now = NOW + timedelta(days=3000)
    after = certificates.extend_ca(CA, now)
    leaf = certificates.issue(SERVER, CA, now)
    assert certificates.renewal_reason(leaf.certificate, SERVER, after, now) == ""
    later = certificates.issue(SERVER, after, now)
    assert certificates.renewal_reason(later.certificate, SERVER, CA, now) == ""


def test_a_folder_never_changes_the_key_of_its_ca(tmp_path: Path) -> None:
    clock = Days()
    first = CertificateFolder(tmp_path, clock.now).ca("ca", "kubernetes")
    for years in (5, 9, 15, 25):
        clock.days = 365 * years
        found = CertificateFolder(tmp_path, clock.now).ca("ca", "kubernetes")
        assert found.key == first.key
        assert certificates.expires(found.certificate) > clock.now()


@pytest.mark.parametrize(
    "leaf, server, client",
    [
        pytest.param(SERVER, True, False, id="a server"),
        pytest.param(
            CertificateConfig(common_name="me", organizations=("g",)), False, True, id="a client"
        ),
        pytest.param(
            CertificateConfig(common_name="peer", alt_names=("localhost",)),
            True,
            True,
            id="a peer is both",
        ),
    ],
)
def test_extended_key_usages(leaf: CertificateConfig, server: bool, client: bool) -> None:
    loaded = x509.load_pem_x509_certificate(certificates.issue(leaf, CA, NOW).certificate)
    usage = loaded.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == server
    assert (ExtendedKeyUsageOID.CLIENT_AUTH in usage) == client
    shown = loaded.subject.rfc4514_string()
    assert f"CN={leaf.common_name}" in shown
    assert all(f"O={group}" in shown for group in leaf.organizations)


def test_repr_omits_private_keys() -> None:
    assert b"PRIVATE" in ISSUED.key
    assert "PRIVATE" not in repr(ISSUED)


def test_a_certificate_without_a_subject_has_critical_names() -> None:
    config = CertificateConfig(common_name="", alt_names=("10.0.0.1",), client_auth=False)
    issued = certificates.load_certificate(certificates.issue(config, CA, NOW).certificate)
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.critical


def test_a_key_of_another_certificate_does_not_match() -> None:
    assert certificates.matches(CA)
    assert not certificates.matches(KeyPair(CA.certificate, OTHER.key))


def test_an_authority_with_an_rsa_key_of_its_own_is_used(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (tmp_path / "tokens.key").write_bytes(pem)
    authority = CertificateAuthority(tmp_path, lambda: NOW)
    assert isinstance(authority.token_key, rsa.RSAPrivateKey)
    assert CertificateAuthority(tmp_path, lambda: NOW).certificate == authority.certificate
    for user in (authority.client("me", ["g"]), authority.server(["localhost"])):
        issued = certificates.load_certificate(user.certificate)
        issued.verify_directly_issued_by(certificates.load_certificate(authority.certificate))
