"""The files of a tenant's control plane: renewal, rotation, names and the stored record."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries import flags
from moxwell.embedded.controlplanes.binaries.tenant_folder import TenantFolder, server_names
from moxwell.pki import certificates
from moxwell.pki.certificates import KeyPair
from moxwell.pki.folder import CertificateFolder
from moxwell.runtime.key import Key

NOW = datetime(2026, 3, 1, tzinfo=UTC)


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


SPEC = HostedControlPlaneSpec(
    key=Key("team", "c1"), uid="u1", version="v1.36.3", replicas=1, cert_sans=("api.example",)
)


def layout(folder: Path) -> flags.TenantLayout:
    return flags.TenantLayout(
        folder=folder, host="127.0.0.1", port=1, manager_port=2, scheduler_port=3,
        etcd_urls=("https://127.0.0.1:4",), etcd_prefix="/tenants/u1/",
        replica_hosts=("127.64.0.1",),
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_two_years_of_a_tenant(tmp_path: Path) -> None:
    """Leaves are renewed before they expire; CAs and token keys never change."""
    clock = Day()
    tenant, etcd = TenantFolder(tmp_path, clock), etcd_ca(tmp_path, clock)
    tenant.write(SPEC, layout(tmp_path), etcd, rotate=False)
    changes, before = [], contents(tmp_path)
    first = before
    while clock.days < 720:
        clock.days += 12
        tenant.write(SPEC, layout(tmp_path), etcd, rotate=False)
        after = contents(tmp_path)
        if any(after[name] != before[name] for name in after if "admin" not in name):
            changes.append(clock.days)
        for name in ("apiserver", "etcd-client", "front-proxy-client"):
            ends = certificates.expires(after[f"pki/{name}.crt"])
            assert ends - clock.now() >= certificates.RENEW_LEAF_BEFORE
        left = certificates.expires(after["pki/admin-client.crt"]) - clock.now()
        assert certificates.ADMIN_LIFETIME / 2 <= left <= certificates.ADMIN_LIFETIME
        before = after
    assert changes == [336, 672]
    kept = {"pki/ca.crt", "pki/ca.key", "pki/front-proxy-ca.crt", "pki/sa.key", "pki/etcd-ca.crt"}
    assert {name for name in first if first[name] == before[name]} >= kept
    assert first["admin.conf"] != before["admin.conf"]
    assert all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.rglob("*") if p.is_file())


def test_rotation_replaces_all_leaves(tmp_path: Path) -> None:
    clock = Day()
    tenant, etcd = TenantFolder(tmp_path, clock), etcd_ca(tmp_path, clock)
    tenant.write(SPEC, layout(tmp_path), etcd, rotate=False)
    before = contents(tmp_path)
    tenant.write(SPEC, layout(tmp_path), etcd, rotate=True)
    same = {name for name, data in contents(tmp_path).items() if before[name] == data}
    assert same == {
        "pki/ca.crt", "pki/ca.key", "pki/front-proxy-ca.crt", "pki/front-proxy-ca.key",
        "pki/sa.pub", "pki/sa.key", "pki/etcd-ca.crt",
    }  # fmt: skip


def test_the_names_of_an_api() -> None:
    names = server_names(SPEC, layout(Path("/t")))
    assert {"127.0.0.1", "127.64.0.1", "api.example", "10.96.0.1", "kubernetes.default.svc"} <= set(
        names
    )
    assert len(names) == len(set(names))


def test_a_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    tenant = TenantFolder(tmp_path, Day())
    ports = {"port": 1, "manager_port": 2, "scheduler_port": 3}
    old = {"uid": "u1", "version": "v1.36.3", **ports, "welcomed": True}
    (tmp_path / "tenant.json").write_bytes(msgspec.json.encode(old))
    found = tenant.find()
    assert found is not None
    assert found.initialized
    tenant.remember(msgspec.structs.replace(found, version="v1.37.0"))
    assert b"welcomed" not in (tmp_path / "tenant.json").read_bytes()


def etcd_ca(folder: Path, clock: Day) -> KeyPair:
    return CertificateFolder(folder.parent / "e", clock.now).ca("ca", "e")
