"""Authentication, API tokens, roles and permissions."""

from typing import Any

import pytest

from moxwell.lab.proxmox.access.permissions import CallerPermissions
from moxwell.lab.proxmox.state import SimAcl, SimGroup, SimPool
from support.simulator_cluster import SimulatedCluster, run_scenario
from support.simulator_session import SimulatorSession, run_session

JOE = {"authorization": "PVEAPIToken=joe@pve!full=s"}
HALF = {"authorization": "PVEAPIToken=joe@pve!half=s"}


def held(sim: SimulatedCluster, path: str, token: str | None = None) -> set[str]:
    return set(CallerPermissions(sim.region, "joe@pve", token).privileges_on(path))


def grant(sim: SimulatedCluster, *rows: tuple[str, str, str, str, int]) -> None:
    sim.region.access.acl = [SimAcl(*row) for row in rows]


@pytest.mark.parametrize(
    "rows, path, expected",
    [
        pytest.param([("/vms", "user", "joe@pve", "PVETemplateUser", 1)], "/vms/100",
                     {"VM.Clone", "VM.Audit"}, id="privileges propagate"),
        pytest.param([("/vms", "user", "joe@pve", "PVETemplateUser", 0)], "/vms/100", set(),
                     id="unless they do not propagate"),
        pytest.param([("/", "user", "joe@pve", "PVEAdmin", 1),
                      ("/vms", "user", "joe@pve", "PVETemplateUser", 1)], "/vms/100",
                     {"VM.Clone", "VM.Audit"}, id="the deeper entry replaces the higher"),
        pytest.param([("/vms", "user", "joe@pve", "PVEAdmin", 1),
                      ("/vms/100", "user", "joe@pve", "NoAccess", 1)], "/vms/100", set(),
                     id="NoAccess removes all"),
        pytest.param([("/vms", "group", "team", "PVETemplateUser", 1)], "/vms/100",
                     {"VM.Clone", "VM.Audit"}, id="a group's rights are its members'"),
        pytest.param([("/vms", "group", "team", "PVEAdmin", 1),
                      ("/vms", "user", "joe@pve", "PVETemplateUser", 1)], "/vms/100",
                     {"VM.Clone", "VM.Audit"}, id="a user entry beats a group entry"),
        pytest.param([("/pool/p", "user", "joe@pve", "PVETemplateUser", 1)], "/vms/200",
                     {"VM.Clone", "VM.Audit"}, id="pool roles apply to guests"),
    ],
)  # fmt: skip
def test_privileges(rows: list[Any], path: str, expected: set[str]) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        sim.region.access.groups["team"] = SimGroup("team", users=["joe@pve"])
        sim.region.pools["p"] = SimPool("p", vms=[200])
        grant(sim, *rows)
        assert held(sim, path) == expected

    run_scenario(scenario)


def test_a_separated_token_has_the_intersection() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        grant(
            sim,
            ("/vms/100", "user", "joe@pve", "PVEVMUser", 1),
            ("/vms", "token", "joe@pve!half", "PVETemplateUser", 1),
        )
        assert held(sim, "/vms/100", "half") == {"VM.Audit"}
        assert held(sim, "/vms/101", "half") == set()
        assert "VM.Console" in held(sim, "/vms/100", "full")

    run_scenario(scenario)


def test_a_ticket_needs_its_csrf_token_to_write() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        login = await sim.request(
            "POST", "/access/ticket", headers={}, username="root@pam", password="secret"
        )
        cookie = {"cookie": f"PVEAuthCookie={login['ticket']}"}
        assert (await sim.send("GET", "/version", headers=cookie)).status == 200
        refused = await sim.send("POST", "/pools", headers=cookie, poolid="p")
        assert (refused.status, refused.reason) == (401, "Permission denied - invalid csrf token")
        both = cookie | {"csrfpreventiontoken": login["CSRFPreventionToken"]}
        assert (await sim.send("POST", "/pools", headers=both, poolid="p")).status == 200

    run_scenario(scenario)


def test_a_ticket_lasts_two_hours_and_renews_itself() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        form = {"username": "root@pam", "password": "secret"}
        first = (await sim.request("POST", "/access/ticket", headers={}, **form))["ticket"]
        await sim.pause(7000)
        form["password"] = first
        second = (await sim.request("POST", "/access/ticket", headers={}, **form))["ticket"]
        await sim.pause(300)
        old, new = ({"cookie": f"PVEAuthCookie={t}"} for t in (first, second))
        assert (await sim.send("GET", "/version", headers=old)).status == 401
        assert (await sim.send("GET", "/version", headers=new)).status == 200

    run_scenario(scenario)


def test_an_authentication_failure_is_delayed() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        before = sim.clock.monotonic()
        answer = await sim.send("GET", "/nodes", headers={})
        assert (answer.status, answer.reason, answer.body) == (401, "No ticket", b"")
        assert sim.clock.monotonic() - before == pytest.approx(3)

    run_scenario(scenario)


@pytest.mark.parametrize(
    "method, path, params, text",
    [
        pytest.param("GET", "/nodes/n1/status", {}, "(/nodes/n1, Sys.Audit)", id="node status"),
        pytest.param("POST", "/pools", {"poolid": "p"}, "(/pool/p, Pool.Allocate)", id="pool"),
        pytest.param("POST", "/storage", {"storage": "s", "type": "dir", "path": "/x"},
                     "(/storage, Datastore.Allocate)", id="storage"),
        pytest.param("POST", "/cluster/ha/resources", {"sid": "vm:100"}, "(/, Sys.Console)",
                     id="ha resource"),
        pytest.param("PUT", "/cluster/options", {"description": "x"}, "(/, Sys.Modify)",
                     id="options"),
        pytest.param("PUT", "/access/password", {"userid": "root@pam", "password": "12345678"},
                     "(URI '/access/password' not available with API token, need proper ticket.",
                     id="no tokens for passwords"),
    ],
)  # fmt: skip
def test_a_403_names_the_missing_privilege(
    method: str, path: str, params: dict[str, str], text: str
) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        answer = await sim.send(method, path, headers=JOE, **params)
        assert (answer.status, answer.reason) == (403, f"Permission check failed {text}")

    run_scenario(scenario)


def test_lists_are_filtered() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        for path in ("/storage", "/nodes/n1/storage", "/pools", "/access/acl"):
            assert await sim.request("GET", path, headers=HALF) == []
        nodes = await sim.request("GET", "/nodes", headers=HALF)
        assert {row["node"] for row in nodes} == {"n1", "n2", "n3"}
        assert all("maxmem" not in row for row in nodes)

    run_scenario(scenario)


PASSWORDS = [
    ("pve", "ann@pve", ""),
    ("no account of the host", "ann@pam",
     "change password failed: usermod: user 'ann' does not exist"),
    ("another realm", "ann@sso", "can't set password on auth type 'openid'"),
    ("no realm", "ann@nosuch", "auth domain 'nosuch' does not exist"),
]  # fmt: skip


@pytest.mark.parametrize("case", PASSWORDS, ids=[case[0] for case in PASSWORDS])
def test_the_realm_decides_whether_a_password_is_set(case: tuple[str, str, str]) -> None:
    _, user, refusal = case

    async def body(sim: SimulatorSession) -> None:
        sso = {"type": "openid", "issuer-url": "https://sso", "client-id": "pve"}
        await sim.post("/access/domains", realm="sso", **sso)
        made = await sim.post("/access/users", userid=user, password="12345678")
        assert made.message == (f"create user failed: {refusal}" if refusal else "")
        await sim.post("/access/users", userid=user)
        changed = await sim.put("/access/password", userid=user, password="12345678")
        assert (changed.status, changed.message) == (500 if refusal else 200, refusal)

    run_session(body)


def test_builtin_realms_and_root_come_back() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        await sim.request("PUT", "/access/domains/pam", comment="hosts", default="1")
        await sim.request("PUT", "/access/domains/pve", default="1")
        pam = await sim.request("GET", "/access/domains/pam")
        assert (pam["comment"], pam["plugin"], "default" in pam) == (
            "hosts",
            "PVE::Auth::PAM",
            False,
        )
        await sim.request("DELETE", "/access/domains/pam")
        await sim.request("DELETE", "/access/users/root@pam")
        rows = {row["realm"]: row for row in await sim.request("GET", "/access/domains")}
        assert rows["pam"]["comment"] == "Linux PAM standard authentication"
        assert rows["pve"]["default"] == 1

    run_scenario(scenario)


def test_deleting_a_user_deletes_its_acl_entries() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        grant(
            sim,
            ("/vms", "user", "joe@pve", "PVEVMUser", 1),
            ("/vms", "token", "joe@pve!half", "PVEVMUser", 1),
        )
        await sim.request("DELETE", "/access/users/joe@pve")
        assert await sim.request("GET", "/access/acl") == []

    run_scenario(scenario)


ROLES = (
    ("/pool/own", "user", "joe@pve", "PVEPoolAdmin", 1),
    ("/vms/100", "user", "joe@pve", "PVETemplateUser", 1),
    ("/storage/own", "user", "joe@pve", "PVEDatastoreAdmin", 1),
)


@pytest.mark.parametrize(
    "method, path, form, message",
    [
        pytest.param("PUT", "/pools", {"poolid": "own", "vms": "100"},
                     "update pools failed: 403 Permission check failed "
                     "(/vms/100, Permissions.Modify|VM.Allocate)", id="a foreign guest"),
        pytest.param("PUT", "/pools", {"poolid": "own", "storage": "local"},
                     "update pools failed: 403 Permission check failed "
                     "(/storage/local, Permissions.Modify|Datastore.Allocate)",
                     id="a foreign storage"),
        pytest.param("PUT", "/access/acl",
                     {"path": "/storage/own", "roles": "Administrator", "users": "joe@pve"},
                     "ACL update failed: 400 Parameter verification failed.\n"
                     "role: Cannot add role 'Administrator' - requires 'Permissions.Modify' or "
                     "superset of privileges.", id="more than one has"),
        pytest.param("PUT", "/access/acl",
                     {"path": "/storage/own", "roles": "PVEDatastoreUser", "tokens": "no@pve!a1"},
                     "ACL update failed: no such user ('no@pve')", id="a token of nobody"),
    ],
)  # fmt: skip
def test_an_error_under_the_lock_of_users_is_plain(
    method: str, path: str, form: dict[str, Any], message: str
) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        sim.region.pools["own"] = SimPool("own")
        grant(sim, *ROLES)
        answer = await sim.send(method, path, headers=JOE, **form)
        assert (answer.status, answer.json()["message"].strip()) == (500, message)
        assert sim.region.pools["own"] == SimPool("own")

    run_scenario(scenario)


@pytest.mark.parametrize(
    "path, status",
    [("/pool/a", 200), ("/pool/a/b", 200), ("/none", 400), ("/vms/1", 400), ("/vms/10 0", 400)],
)
def test_acl_paths(path: str, status: int) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        form: dict[str, Any] = {"path": path, "roles": "PVEVMUser", "users": "joe@pve"}
        answer = await sim.send("PUT", "/access/acl", **form)
        assert answer.status == status

    run_scenario(scenario)


def test_the_acl_of_a_nested_pool_stays() -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        for name in ("a", "a/b"):
            await sim.request("POST", "/pools", poolid=name)
        grant(sim, ("/pool/a/b", "user", "joe@pve", "PVEPoolUser", 1))
        await sim.request("DELETE", "/pools", poolid="a/b")
        assert [row.path for row in sim.region.access.acl] == ["/pool/a/b"]
        await sim.request("DELETE", "/pools", poolid="a")
        assert sim.region.access.acl == []

    run_scenario(scenario)
