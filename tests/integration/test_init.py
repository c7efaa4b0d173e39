"""``moxwell init`` against a simulated Proxmox over HTTPS, killed at every write."""

import asyncio
import shlex
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from moxwell.clock import SystemClock
from moxwell.config_file import InvalidConfig
from moxwell.embedded.controlplanes import addresses
from moxwell.errors import Denied, Invalid, Unreachable
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox.simulator import Simulator
from moxwell.lab.proxmox.world import read_world
from moxwell.onboarding import certificate, config_file
from moxwell.onboarding.access import see_access
from moxwell.onboarding.access_plan import (
    AccessRequest,
    InvalidAccess,
    chosen_features,
    commands,
    plan_access,
    role_name,
    wanted_roles,
)
from moxwell.onboarding.connect import AdminLogin, check_configured, connect
from moxwell.onboarding.local_address import local_address
from moxwell.preflight import probe
from moxwell.preflight.outcome import CheckLevel
from moxwell.pve import config as pve_config
from moxwell.pve import preflight
from moxwell.pve.client import PveReader
from moxwell.pve.effects import Effects, Owned, PveWrite
from moxwell.pve.errors import PermissionDenied
from moxwell.pve.regions import Regions
from moxwell.pve.transport import PveHttpTransport
from moxwell.pve.values import SecretValue

PASSWORD = "correct horse"
USERS = ("moxwell-tenants@pve", "root@pam", "moxwell@pve")
OTHERS = [f"access/users/{user}/token/red" for user in USERS]
WORLD = """
regions:
  - name: r1
    version: "{version}"
    nodes: [{{name: pve1, cpus: 8, memory: 64G}}]
    storages: [{{storage: local, type: dir, path: /var/lib/vz, content: [iso, images]}}]
    access:
      users: [{{userid: root@pam, password: "correct horse"}}]
"""


@asynccontextmanager
async def proxmox(folder: Path, version: str) -> AsyncIterator[tuple[Simulator, AdminLogin]]:
    clock = SystemClock()
    made = certs.make(folder, clock.now())
    world = read_world(WORLD.format(version=version), "init.yaml", clock.now().timestamp())
    simulator = Simulator(world, clock, tls=made.context())
    await simulator.start()
    try:
        url = simulator.url()
        shown = await certificate.fetch_certificate(url)
        assert not shown.trusted
        login = AdminLogin("r1", url, "root@pam", SecretValue(PASSWORD), shown.fingerprint)
        yield simulator, login
    finally:
        await simulator.stop()


def request(pool: str = "") -> AccessRequest:
    return AccessRequest(0, "moxwell@pve", "moxwell", chosen_features(None), pool)


TENANTS = (*chosen_features(None), "tenants")
ALL_FEATURES = tuple(dict.fromkeys(need.feature for need in preflight.NEEDS))


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_the_feature_of_tenants_lets_moxwell_make_tokens_of_one_user_only(
    tmp_path: Path, version: str
) -> None:
    path = tmp_path / "moxwell.yaml"
    async with proxmox(tmp_path, version) as (_, login):
        asked = replace(request(), features=TENANTS)
        await connect(login, asked, path, SystemClock(), lambda _: None)
        (region,) = pve_config.load(path)
        regions = Regions([region], SystemClock())
        pve = regions["r1"].writer(Owned("test", names=OTHERS))
        await pve.access.create_token("moxwell-tenants@pve", "red")
        for user in ("root@pam", "moxwell@pve"):
            with pytest.raises(PermissionDenied):
                await pve.access.create_token(user, "red")
        await regions.close()


@pytest.mark.parametrize("pool", ["", "kubernetes"])
@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_a_token_of_least_privilege_is_made(tmp_path: Path, version: str, pool: str) -> None:
    path, said = tmp_path / "moxwell.yaml", list[str]()
    async with proxmox(tmp_path, version) as (simulator, login):
        await connect(login, request(pool), path, SystemClock(), said.append)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert PASSWORD not in path.read_text()
        assert said[-1].endswith("has all privileges that it needs.")
        (region,) = pve_config.load(path)
        regions = Regions([region], SystemClock())
        granted = await regions["r1"].reader.access.permissions()
        await regions.close()
        guests = f"/pool/{pool}" if pool else "/vms"
        assert "VM.Allocate" in granted[guests]
        assert "Sys.PowerMgmt" not in granted["/nodes"]
        before = path.read_text()
        said.clear()
        await connect(login, request(pool), path, SystemClock(), said.append)
        assert path.read_text() == before  # a second run changes nothing
        assert said == [f"The token moxwell@pve!moxwell exists and is in {path}."]
        access = simulator.engine.runtimes["r1"].region.access
        asked = replace(request(pool), major=int(version[0]))
        made = [entry for entry in access.acl if entry.roleid.startswith("Moxwell")]
        assert len(made) == 2 * len(wanted_roles(asked))  # for the user and for its token


class Killed(Exception):
    """The process ends here."""


class KillAfter(Effects):
    """Ends the process after some writes."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self._left = writes

    async def send(self, write: PveWrite, transmit: object) -> bytes:
        if self._left == 0:
            raise Killed
        self._left -= 1
        return await super().send(write, transmit)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_it_can_be_killed_after_every_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """With all features and a pool; after each number of writes a second run completes it."""
    asked = replace(request("kubernetes"), features=ALL_FEATURES)
    path, writes, killed = tmp_path / "moxwell.yaml", 0, True
    async with proxmox(tmp_path, version) as (simulator, login):
        region = simulator.engine.runtimes["r1"].region
        before = deepcopy((region.access, region.pools))
        while killed:
            region.access, region.pools = deepcopy(before)
            path.unlink(missing_ok=True)
            killed = await killed_after(writes, login, asked, path, monkeypatch)
            assert path.exists() != killed
            await connect(login, asked, path, SystemClock(), lambda _: None)
            (config,) = pve_config.load(path)
            regions = Regions([config], SystemClock())
            granted = await regions["r1"].reader.access.permissions()
            await regions.close()
            assert "VM.Clone" in granted["/pool/kubernetes"]
            assert list(region.access.users["moxwell@pve"].tokens) == ["moxwell"]
            writes += 1
    assert writes > 2 * len(wanted_roles(replace(asked, major=int(version[0]))))


async def killed_after(
    writes: int,
    login: AdminLogin,
    asked: AccessRequest,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> bool:
    """Connect and end after so many writes; False if it was done by then."""
    with monkeypatch.context() as patched:
        patched.setattr("moxwell.onboarding.connect.Effects", lambda _: KillAfter(writes))
        try:
            await connect(login, asked, path, SystemClock(), lambda _: None)
        except Killed:
            return True
    return False


async def test_a_wrong_password_and_a_wrong_certificate_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "moxwell.yaml"
    async with proxmox(tmp_path, "9.2.11") as (simulator, login):
        wrong = AdminLogin("r1", login.url, "root@pam", SecretValue("x"), login.fingerprint)
        other = AdminLogin("r1", login.url, "root@pam", SecretValue(PASSWORD), "0" * 64)
        for bad in (wrong, other):
            with pytest.raises((Denied, Unreachable)) as failed:
                await connect(bad, request(), path, SystemClock(), lambda _: None)
            assert PASSWORD not in str(failed.value)
        access = simulator.engine.runtimes["r1"].region.access
        assert "moxwell@pve" not in access.users
        assert not path.exists()


def test_the_commands_make_the_same_roles() -> None:
    asked = AccessRequest(9, "moxwell@pve", "moxwell", chosen_features(None))
    lines = commands(asked)
    for path, privileges in wanted_roles(asked).items():
        assert f"pveum role add {role_name(path)} --privs '{' '.join(privileges)}'" in lines
    assert "pveum user token add moxwell@pve moxwell --privsep 1" in lines


@pytest.mark.parametrize(
    ("user", "token", "pool"),
    [("moxwell", "moxwell", ""), ("a@pve", "x", ""), ("a@pve", "1x", ""), ("a@pve", "ok", "a b")],
)
def test_names_that_proxmox_refuses_are_refused_at_once(user: str, token: str, pool: str) -> None:
    with pytest.raises(InvalidAccess):
        AccessRequest(9, user, token, chosen_features(None), pool).check()
    with pytest.raises(InvalidAccess, match="unknown feature 'machine'"):
        chosen_features(["machine"])


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("pve1", "https://pve1:8006"),
        ("https://pve1.example.org", "https://pve1.example.org:8006"),
        ("https://10.0.0.1:443/api2/json", "https://10.0.0.1:443"),
        ("https://[fd00::1]:8006", "https://[fd00::1]:8006"),
    ],
)
def test_urls_are_completed(text: str, url: str) -> None:
    assert certificate.normalized_url(text) == url


@pytest.mark.parametrize("text", ["http://pve1", "https://", "https://u:p@pve1", "pve1:99999"])
def test_urls_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        certificate.normalized_url(text)


def test_a_region_is_added_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "moxwell.yaml"
    entry = config_file.region_entry("a", "https://a:8006", "m@pve!moxwell", "s")
    config_file.add_region(path, entry)
    config_file.add_region(path, {**entry, "region": "b", "url": "https://b:8006"})
    config_file.add_region(path, {**entry, "token_secret": "new"})
    assert config_file.known_regions(path) == ("b", "a")
    for text in ("clusters: {a: 1}\n", "clusters: [a]\n", "[]\n- a\n"):
        path.write_text(text)
        with pytest.raises(InvalidConfig):
            config_file.add_region(path, entry)
        assert path.read_text() == text


def test_the_address_of_control_planes_is_set_once(tmp_path: Path) -> None:
    path = tmp_path / "moxwell.yaml"
    config_file.add_region(
        path, config_file.region_entry("a", "https://a:8006", "m@pve!moxwell", "s")
    )
    assert config_file.set_control_plane_address(path, "192.0.2.5")
    assert not config_file.set_control_plane_address(path, "192.0.2.6")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert addresses.parse(path.read_text()).address == "192.0.2.5"
    assert config_file.known_regions(path) == ("a",)


async def test_an_address_of_this_machine_is_proposed() -> None:
    for url in ("https://127.0.0.1:8006", "https://no-such-host.invalid:8006"):
        assert await local_address(url) == ""


async def test_a_silent_host_is_named() -> None:
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port} does not answer"):
        await certificate.fetch_certificate(f"https://127.0.0.1:{port}")


def api_call(line: str) -> tuple[str, str, dict[str, str | int]]:
    """The request that ``pveum`` sends for a line."""
    match shlex.split(line):
        case ["pveum", "role", "add", name, "--privs", privileges]:
            return "POST", "/access/roles", {"roleid": name, "privs": privileges}
        case ["pveum", "acl", "modify", path, kind, who, "--roles", role, *rest]:
            propagate = 0 if rest == ["--propagate", "0"] else 1
            form: dict[str, str | int] = {"path": path, "roles": role, "propagate": propagate}
            return "PUT", "/access/acl", {**form, kind.removeprefix("--"): who}
        case ["pveum", "user", "token", "add", user, token, "--privsep", "1"]:
            return "POST", f"/access/users/{user}/token/{token}", {"privsep": 1}
        case ["pveum", "user", "add", user]:
            return "POST", "/access/users", {"userid": user}
        case ["pveum", "user", "add", user, "--groups", group]:
            return "POST", "/access/users", {"userid": user, "groups": group}
        case ["pveum", "group", "add", group]:
            return "POST", "/access/groups", {"groupid": group}
        case ["pveum", "pool", "add", pool]:
            return "POST", "/pools", {"poolid": pool}
    raise AssertionError(f"no such command: {line}")


@pytest.mark.parametrize("pool", ["", "kubernetes"])
@pytest.mark.parametrize("version", ["8.4.21", "9.2.11"])
async def test_the_printed_lines_of_all_features_work(
    tmp_path: Path, version: str, pool: str
) -> None:
    """An administrator who types them gets what ``init`` makes: nothing is left to change."""
    asked = AccessRequest(int(version[0]), "moxwell@pve", "moxwell", ALL_FEATURES, pool)
    async with proxmox(tmp_path, version) as (_, login):
        transport = PveHttpTransport(login.config(), SystemClock())
        for line in commands(asked):
            await transport.request(*api_call(line))
        existing = await see_access(PveReader(transport), asked)
        await transport.close()
    assert plan_access(asked, existing) == ()


async def test_a_region_is_checked_with_its_new_token(tmp_path: Path) -> None:
    path = tmp_path / "moxwell.yaml"
    async with proxmox(tmp_path, "9.2.11") as (_, login):
        asked = request("kubernetes")
        await connect(login, asked, path, SystemClock(), lambda _: None)
        assert pve_config.load(path)[0].pool == "kubernetes"
        found = await check_configured(path, "r1", asked.features, SystemClock(), probe.answers)
        assert {c.name for c in found if c.level is CheckLevel.FAIL} == {"templates"}
        (privileges,) = [c.what for c in found if c.name == "privileges"]
        assert privileges == "the token has all privileges in the pool kubernetes"
