"""Attacks on the audit logs: changes without a record, records with secrets or without end."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moxwell.api.requests import UserInfo
from moxwell.embedded.apiserver.audit.audit_log import AuditLog
from moxwell.embedded.apiserver.audit.policy import (
    AuditedRequest,
    AuditLevel,
    AuditRule,
    default_rules,
    level_of,
    parse_policy,
)
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.errors import Invalid, MoxwellError
from moxwell.json_lines import JsonLinesFile
from moxwell.pve.audit import FileAudit
from moxwell.pve.effects import Effects, Owned, PveWrite
from moxwell.testing.api_calls import ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

CORE = "/api/v1/namespaces/default"
JANE = UserInfo(name="jane", groups=("system:masters", "system:authenticated"))
EVERYTHING = (AuditRule(level=AuditLevel.REQUEST_RESPONSE),)


def lines(path: Path) -> list[dict[str, Any]]:
    files = sorted(path.parent.glob(f"{path.name}*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def played(
    path: Path,
    story: Callable[[ApiClient], Awaitable[None]],
    rules: tuple[AuditRule, ...] | None = None,
    user: UserInfo = JANE,
) -> list[dict[str, Any]]:
    async def main() -> None:
        clock = LoopClock()
        audit = AuditLog(JsonLinesFile(path), clock, rules)
        async with EmbeddedApiServer(clock=clock, audit=audit) as server:
            await story(ApiClient(server, user))

    run_virtual(main())
    return lines(path)


def test_a_change_is_recorded_with_user_object_and_outcome(tmp_path: Path) -> None:
    meta = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}

    async def story(api: ApiClient) -> None:
        await api("POST", f"{CORE}/services", {**meta, "spec": {"ports": [{"port": 1}]}})
        await api("DELETE", f"{CORE}/services/b")

    created, deleted = played(tmp_path / "a.jsonl", story)
    assert created["kind"] == "Event"
    assert created["apiVersion"] == "audit.k8s.io/v1"
    assert (created["verb"], created["user"]["username"]) == ("create", "jane")
    assert created["objectRef"]["resource"] == "services"
    assert created["responseStatus"]["code"] == 201
    assert created["requestObject"]["spec"]["ports"] == [{"port": 1}]
    assert deleted["responseStatus"]["reason"] == "NotFound"
    assert (tmp_path / "a.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_refused_request_is_recorded(tmp_path: Path) -> None:
    async def story(api: ApiClient) -> None:
        assert (await api("DELETE", f"{CORE}/pods/a")).status == 403
        assert (await api("DELETE", f"{CORE}/pods/a", extra=masters)).status == 403

    masters = {"impersonate-user": "x", "impersonate-group": "system:masters"}
    nobody = UserInfo(name="mallory", groups=("system:authenticated",))
    plain, impersonated = played(tmp_path / "a.jsonl", story, user=nobody)
    assert plain["responseStatus"]["code"] == 403
    assert impersonated["user"]["username"] == "mallory"
    assert "system:masters" in impersonated["impersonatedUser"]["groups"]


@pytest.mark.parametrize("rules", [None, EVERYTHING])
def test_no_secret_is_recorded_whatever_the_policy_says(
    tmp_path: Path, rules: tuple[AuditRule, ...] | None
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    tokens: list[str] = []

    async def story(api: ApiClient) -> None:
        await api("POST", f"{CORE}/secrets", {**secret, "stringData": {"p": "hunter2"}})
        await api("GET", f"{CORE}/secrets/a")
        await api("GET", f"{CORE}/secrets")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}
        await api("POST", f"{CORE}/serviceaccounts", account)
        made = await api("POST", f"{CORE}/serviceaccounts/bot/token", token)
        tokens.append(made.object["status"]["token"])
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        await api("POST", path, {**review, "spec": {"token": tokens[0]}})

    found = played(tmp_path / "a.jsonl", story, rules)
    assert len(found) >= 6
    text = json.dumps(found)
    assert "hunter2" not in text
    assert "aHVudGVyMg" not in text
    assert tokens[0] not in text


def test_a_body_without_end_is_not_recorded(tmp_path: Path) -> None:
    annotations = {"a": "x" * 100_000}
    meta = {"name": "a", "annotations": annotations}

    async def story(api: ApiClient) -> None:
        await api("POST", "/api/v1/namespaces", {"metadata": meta})

    (event,) = played(tmp_path / "a.jsonl", story)
    assert "omitted" in event["requestObject"]
    assert (tmp_path / "a.jsonl").stat().st_size < 2_000


def test_the_files_are_rotated(tmp_path: Path) -> None:
    file = JsonLinesFile(tmp_path / "a.jsonl", max_bytes=1_000, keep=2)
    for number in range(200):
        file.append({"number": number, "text": "100 % of it\nand more"})
    file.close()
    assert len(list(tmp_path.iterdir())) == 3
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= 3_000
    assert lines(tmp_path / "a.jsonl")[-1]["text"] == "100 % of it\nand more"


@pytest.mark.parametrize("text", ["plain", "ü\u2028\u0085", "\ud800", "\x7f\n"])
def test_every_text_is_one_line_of_ascii(tmp_path: Path, text: str) -> None:
    line = {"text": text, "number": 10**400}
    file = JsonLinesFile(tmp_path / "a.jsonl", max_bytes=1_000, keep=2)
    for _ in range(4):
        file.append(line)
    file.close()
    assert all(f.stat().st_size <= 1_000 for f in tmp_path.iterdir())
    assert all(f.read_bytes().isascii() for f in tmp_path.iterdir())
    assert lines(tmp_path / "a.jsonl") == [line] * 4


def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    file = JsonLinesFile(Path("/dev/full"))
    file.append({"a": 1})
    file.close()
    assert file.lost == 1


@pytest.mark.parametrize(
    "request_, level",
    [
        (AuditedRequest(verb="get", user="jane", path="/healthz"), "NONE"),
        (AuditedRequest(verb="update", user="x", group="coordination.k8s.io", resource="leases"),
         "NONE"),
        (AuditedRequest(verb="get", user="jane", resource="secrets"), "METADATA"),
        (AuditedRequest(verb="create", user="jane", resource="secrets"), "METADATA"),
        (AuditedRequest(verb="list", user="jane", resource="pods"), "METADATA"),
        (AuditedRequest(verb="create", user="jane", resource="pods/eviction"), "REQUEST"),
        (AuditedRequest(verb="patch", user="system:node:a", groups=("system:nodes",),
                        resource="nodes/status"), "NONE"),
        (AuditedRequest(verb="get", user="system:node:a", groups=("system:nodes",),
                        resource="secrets"), "METADATA"),
        (AuditedRequest(verb="delete", user="system:moxwell", resource="pods"), "METADATA"),
        (AuditedRequest(verb="patch", user="system:moxwell", group="cluster.x-k8s.io",
                        resource="machines/status"), "NONE"),
        (AuditedRequest(verb="patch", user="system:moxwell", group="cluster.x-k8s.io",
                        resource="machines"), "METADATA"),
        (AuditedRequest(verb="patch", user="jane", group="cluster.x-k8s.io",
                        resource="machines/status"), "REQUEST"),
    ],
)  # fmt: skip
def test_the_default_policy(request_: AuditedRequest, level: str) -> None:
    assert level_of(request_, default_rules()).name == level


def test_a_policy_of_the_operator() -> None:
    rules = parse_policy(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "rules": [
                {"level": "None", "users": ["quiet"], "verbs": ["get"]},
                {"level": "RequestResponse", "resources": [{"group": "", "resources": ["pods"]}]},
                {"level": "Metadata", "nonResourceURLs": ["/healthz*"]},
            ],
        }
    )
    quiet = AuditedRequest(verb="get", user="quiet", resource="pods")
    pods = AuditedRequest(verb="get", user="x", resource="pods")
    health = AuditedRequest(verb="get", user="x", path="/healthz/x")
    found = [level_of(about, rules).name for about in (quiet, pods, health)]
    assert found == ["NONE", "REQUEST_RESPONSE", "METADATA"]


@pytest.mark.parametrize("content", [None, {}, {"kind": "Policy", "rules": [{"level": "All"}]}, []])
def test_a_wrong_policy_is_named(content: Any) -> None:
    with pytest.raises(Invalid, match="audit policy"):
        parse_policy(content)


def test_every_write_to_proxmox_is_recorded_sent_or_not(tmp_path: Path) -> None:
    path = tmp_path / "proxmox.jsonl"

    async def transmit() -> bytes:
        return b"{}"

    async def main() -> None:
        clock, file = LoopClock(), JsonLinesFile(path)
        effects = Effects(FileAudit(file, clock), clock=clock)
        owned, params = Owned("test", vmids=[100]), {"cipassword": "hunter2", "name": "a"}
        mine, foreign = (
            PveWrite("r", "POST", f"/nodes/a/qemu/{vmid}/config", params, owned)
            for vmid in (100, 101)
        )
        await effects.send(mine, transmit)
        with pytest.raises(MoxwellError, match="does not own"):
            await effects.send(foreign, transmit)
        file.close()

    run_virtual(main())
    sent, refused = lines(path)
    assert (sent["outcome"], refused["outcome"]) == ("ok", "refused")
    assert sent["time"]
    assert "hunter2" not in path.read_text()
