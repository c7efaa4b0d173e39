"""Attacks with certificates: a kubeconfig that was copied, revoked or kept for too long."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from moxwell.app.credentials import (
    NoClientCertificate,
    revoke_certificate,
    rotate_kubeconfig,
)
from moxwell.app.state_dir import StateDir
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.hosted_folder import HostedFolder
from moxwell.kube import kubeconfig_writer
from moxwell.pki import certificates
from moxwell.pki.certificates import ADMIN_LIFETIME, KeyPair
from moxwell.pki.folder import CertificateAuthority
from moxwell.pki.revocation import RevocationList, RevocationListInvalid
from moxwell.runtime.key import Key
from moxwell.testing.loop import LoopClock, run_virtual

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Time:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@contextmanager
def tls(authority: CertificateAuthority, pair: KeyPair, folder: Path) -> Iterator[ssl.SSLContext]:
    (folder / "c.crt").write_bytes(pair.certificate)
    (folder / "c.key").write_bytes(pair.key)
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    context.load_cert_chain(folder / "c.crt", folder / "c.key")
    yield context


def test_a_revoked_certificate_is_refused_on_an_open_connection(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SystemClock()
        authority = CertificateAuthority(tmp_path / "pki", clock.now)
        pair = authority.administrator()
        assert pair is not None
        async with (
            EmbeddedApiServer(clock=clock) as server,
            HttpServer(server, authority, folder=tmp_path / "pki") as http,
        ):
            url = f"{http.url}/api/v1/secrets"
            with tls(authority, pair, tmp_path) as context:
                connector = aiohttp.TCPConnector(ssl=context)
                async with aiohttp.ClientSession(connector=connector) as session:
                    async with session.get(url) as answer:
                        assert answer.status == 200
                    other = CertificateAuthority(tmp_path / "pki", clock.now)  # another process
                    other.revoke(pair.certificate)
                    async with session.get(url) as answer:
                        assert answer.status == 401

    asyncio.run(main())


def test_an_administrator_certificate_lives_for_days(tmp_path: Path) -> None:
    time = Time()
    authority = CertificateAuthority(tmp_path, time)
    pair = authority.administrator()
    assert pair is not None
    assert certificates.expires(pair.certificate) - NOW == ADMIN_LIFETIME <= timedelta(days=7)
    assert authority.administrator(pair.certificate) is None
    time.now += ADMIN_LIFETIME / 2 + timedelta(minutes=1)
    renewed = authority.administrator(pair.certificate)
    assert renewed is not None
    assert certificates.expires(renewed.certificate) > certificates.expires(pair.certificate)


def test_a_certificate_of_ten_years_is_replaced(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, lambda: NOW)
    old = authority.client("kubernetes-admin", ("system:masters",), timedelta(days=3650))
    assert authority.administrator(old.certificate) is not None


def test_the_rotation_of_a_tenant_revokes_its_old_kubeconfig(tmp_path: Path) -> None:
    async def main() -> None:
        folder = HostedFolder(tmp_path, LoopClock(), "127.0.0.1")
        authority = folder.authority()
        spec = HostedControlPlaneSpec(
            key=Key("default", "a"), uid="u", version="v1.36.3", replicas=1
        )
        first = folder.admin_kubeconfig(spec, authority, 1)
        assert folder.admin_kubeconfig(spec, authority, 1) == first
        second = folder.admin_kubeconfig(replace(spec, rotation="again"), authority, 1)
        old, new = (_serial(text) for text in (first, second))
        assert old != new
        assert authority.revocations.is_revoked(old)
        assert not authority.revocations.is_revoked(new)

    run_virtual(main())


def _serial(kubeconfig: str) -> int:
    found = kubeconfig_writer.client_certificate(kubeconfig)
    assert found is not None
    return certificates.load_certificate(found).serial_number


def test_the_list_forgets_certificates_that_expired(tmp_path: Path) -> None:
    time = Time()
    authority = CertificateAuthority(tmp_path, time)
    pairs = [authority.client("a", (), timedelta(days=1)) for _ in range(2)]
    authority.revoke(pairs[0].certificate)
    time.now += timedelta(days=2)
    authority.revoke(pairs[1].certificate)
    serials = [certificates.load_certificate(p.certificate).serial_number for p in pairs]
    assert [authority.revocations.is_revoked(s) for s in serials] == [False, True]


def test_a_list_that_cannot_be_read_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "revoked.json").write_text("{")
    with pytest.raises(RevocationListInvalid, match="restore it"):
        RevocationList(tmp_path / "revoked.json").is_revoked(1)


def instance(folder: Path) -> StateDir:
    state = StateDir("a", {"XDG_STATE_HOME": str(folder)})
    authority = CertificateAuthority(state.pki, SystemClock().now)
    pair = authority.administrator()
    assert pair is not None
    text = kubeconfig_writer.render("https://x", authority.certificate, pair, "moxwell")
    state.kubeconfig.write_text(text)
    return state


def test_the_operator_rotates_the_kubeconfig(tmp_path: Path) -> None:
    state, clock = instance(tmp_path), SystemClock()
    old = _serial(state.kubeconfig.read_text())
    rotate_kubeconfig(state, clock)
    new = _serial(state.kubeconfig.read_text())
    revocations = CertificateAuthority(state.pki, clock.now).revocations
    assert (revocations.is_revoked(old), revocations.is_revoked(new)) == (True, False)


def test_the_operator_revokes_the_kubeconfig_of_a_tenant(tmp_path: Path) -> None:
    state, clock = instance(tmp_path), SystemClock()
    tenant = CertificateAuthority(state.control_planes / "team" / "a" / "pki", clock.now)
    pair = tenant.administrator()
    assert pair is not None
    file = tmp_path / "leaked"
    file.write_text(kubeconfig_writer.render("https://y", tenant.certificate, pair, "a"))
    assert revoke_certificate(state, file, clock) == "team/a"
    serial = certificates.load_certificate(pair.certificate).serial_number
    assert tenant.revocations.is_revoked(serial)


@pytest.mark.parametrize("text", ["", "{}", "kind: Config", "-----BEGIN CERTIFICATE-----"])
def test_a_file_without_a_certificate_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x"
    file.write_text(text)
    with pytest.raises(NoClientCertificate):
        revoke_certificate(instance(tmp_path), file, SystemClock())
