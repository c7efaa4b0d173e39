"""When certificates are made anew, and for whom: tables and a year on a virtual clock."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Wish
from moxwell.embedded.controlplanes.binaries import certificates, flags
from moxwell.embedded.controlplanes.binaries.certificates import Leaf
from moxwell.embedded.controlplanes.binaries.files import Shelf, Tenant, server_names
from moxwell.runtime.key import Key

NOW = datetime(2026, 3, 1, tzinfo=UTC)
CA, OTHER = (
    certificates.make_authority("kubernetes", NOW),
    certificates.make_authority("kubernetes", NOW),
)
SERVER = Leaf(user="api", names=("10.0.0.1", "api.local"), client=False)
MADE = certificates.issue(SERVER, CA, NOW)


@pytest.mark.parametrize(
    "days, leaf, signer, why",
    [
        pytest.param(0, SERVER, CA, "", id="fresh"),
        pytest.param(334, SERVER, CA, "", id="a month and a day left"),
        pytest.param(336, SERVER, CA, "expires", id="less than a month left"),
        pytest.param(5000, SERVER, CA, "expires", id="long over"),
        pytest.param(
            1, Leaf(user="api", names=("10.0.0.1", "new"), client=False), CA, "names", id="a name"
        ),
        pytest.param(1, Leaf(user="api", names=("10.0.0.1",)), CA, "", id="a name too many"),
        pytest.param(1, SERVER, OTHER, "signer", id="another authority of the same name"),
    ],
)
def test_why_a_certificate_is_made_anew(
    days: int, leaf: Leaf, signer: certificates.Pair, why: str
) -> None:
    now = NOW + timedelta(days=days)
    assert certificates.why_due(MADE.certificate, leaf, signer, now) == why
    again = certificates.renewed(MADE, leaf, signer, now)
    assert (again is MADE) == (not why)
    assert not certificates.why_due(again.certificate, leaf, signer, now)


@pytest.mark.parametrize(
    "days, longer",
    [
        pytest.param(0, False, id="fresh"),
        pytest.param(3650 - 731, False, id="two years and a day left"),
        pytest.param(3650 - 729, True, id="less than two years left"),
        pytest.param(5000, True, id="long over"),
    ],
)
def test_an_authority_lives_on_under_its_key(days: int, longer: bool) -> None:
    now = NOW + timedelta(days=days)
    after = certificates.extended(CA, now)
    assert (after is not CA) == longer
    assert after.key == CA.key
    assert certificates.expires(after.certificate) > NOW + timedelta(days=3649)
    assert not longer or certificates.expires(after.certificate) == now + timedelta(days=3650)


def test_old_and_new_certificates_of_an_authority_vouch_for_the_same() -> None:
    now = NOW + timedelta(days=3000)
    after = certificates.extended(CA, now)
    leaf = certificates.issue(SERVER, CA, now)
    assert certificates.why_due(leaf.certificate, SERVER, after, now) == ""
    later = certificates.issue(SERVER, after, now)
    assert certificates.why_due(later.certificate, SERVER, CA, now) == ""


def test_a_folder_keeps_the_key_of_its_authority_for_ever(tmp_path: Path) -> None:
    clock = Day()
    first = Shelf(tmp_path, clock).authority("ca", "kubernetes")
    for years in (5, 9, 15, 25):
        clock.days = 365 * years
        found = Shelf(tmp_path, clock).authority("ca", "kubernetes")
        assert found.key == first.key
        assert certificates.expires(found.certificate) > clock.now()


@pytest.mark.parametrize(
    "leaf, server, client",
    [
        pytest.param(SERVER, True, False, id="a server"),
        pytest.param(Leaf(user="me", groups=("g",)), False, True, id="a client"),
        pytest.param(Leaf(user="peer", names=("localhost",)), True, True, id="a peer is both"),
    ],
)
def test_a_certificate_is_good_for_what_it_is_for(leaf: Leaf, server: bool, client: bool) -> None:
    made = x509.load_pem_x509_certificate(certificates.issue(leaf, CA, NOW).certificate)
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == server
    assert (ExtendedKeyUsageOID.CLIENT_AUTH in usage) == client
    shown = made.subject.rfc4514_string()
    assert f"CN={leaf.user}" in shown
    assert all(f"O={group}" in shown for group in leaf.groups)


def test_keys_are_never_shown() -> None:
    assert b"PRIVATE" in MADE.key
    assert "PRIVATE" not in repr(MADE)


class Day:
    """A clock that stands at a day."""

    def __init__(self) -> None:
        self.days = 0

    def now(self) -> datetime:
        return NOW + timedelta(days=self.days)

    def monotonic(self) -> float:
        return self.days * 86400.0

    async def sleep(self, seconds: float) -> None:
        self.days += 1


WISH = Wish(key=Key("team", "c1"), uid="u1", version="v1.36.3", replicas=1, sans=("api.example",))


def seat(folder: Path) -> flags.Seat:
    return flags.Seat(
        folder=folder, host="127.0.0.1", port=1, manager_port=2, scheduler_port=3, etcd_port=4,
        prefix="/tenants/u1/",
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_two_years_of_a_tenant(tmp_path: Path) -> None:
    """Leaves change before they end, authorities and token keys never; seen every twelve days."""
    clock = Day()
    tenant, etcd = Tenant(tmp_path, clock), Shelf(tmp_path.parent / "e", clock).authority("ca", "e")
    tenant.write(WISH, seat(tmp_path), etcd, fresh=False)
    changes, before = [], contents(tmp_path)
    first = before
    while clock.days < 720:
        clock.days += 12
        tenant.write(WISH, seat(tmp_path), etcd, fresh=False)
        after = contents(tmp_path)
        if after != before:
            changes.append(clock.days)
        for name in ("apiserver", "admin-client", "etcd-client", "front-proxy-client"):
            ends = certificates.expires(after[f"pki/{name}.crt"])
            assert ends - clock.now() >= certificates.RENEW_BEFORE
        before = after
    assert changes == [336, 672]
    kept = {"pki/ca.crt", "pki/ca.key", "pki/front-proxy-ca.crt", "pki/sa.key", "pki/etcd-ca.crt"}
    assert {name for name in first if first[name] == before[name]} >= kept
    assert first["admin.conf"] != before["admin.conf"]
    assert all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.rglob("*") if p.is_file())


def test_what_was_asked_to_be_fresh_is(tmp_path: Path) -> None:
    clock = Day()
    tenant, etcd = Tenant(tmp_path, clock), Shelf(tmp_path.parent / "e", clock).authority("ca", "e")
    tenant.write(WISH, seat(tmp_path), etcd, fresh=False)
    before = contents(tmp_path)
    tenant.write(WISH, seat(tmp_path), etcd, fresh=True)
    same = {name for name, data in contents(tmp_path).items() if before[name] == data}
    assert same == {
        "pki/ca.crt", "pki/ca.key", "pki/front-proxy-ca.crt", "pki/front-proxy-ca.key",
        "pki/sa.pub", "pki/sa.key", "pki/etcd-ca.crt",
    }  # fmt: skip


def test_the_names_of_an_api() -> None:
    names = server_names(WISH, "127.0.0.1")
    assert {"127.0.0.1", "api.example", "10.96.0.1", "kubernetes.default.svc"} <= set(names)
    assert len(names) == len(set(names))
