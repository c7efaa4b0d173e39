"""RBAC, escalation checks, tokens and access reviews."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from moxwell.api.requests import UserInfo
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.auth.tokens import ServiceAccountTokens
from moxwell.embedded.apiserver.object_cache import ObjectCache
from moxwell.pki.folder import CertificateAuthority
from moxwell.testing.api_calls import CM, ApiClient, configmap

Play = Callable[..., Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
JANE = UserInfo(name="jane", groups=("team", "system:authenticated"))


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    return {**head, "metadata": {"name": name}, "rules": list(rules)}


def rule(verbs: list[str], resources: list[str], **more: Any) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": resources, "verbs": verbs, **more}


def binding(name: str, kind: str = "Role") -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": name},
        "subjects": [{"kind": "User", "name": "jane"}],
    }


@pytest.mark.parametrize(
    "given, method, path, status",
    [
        pytest.param(rule(["get"], ["configmaps"]), "GET", f"{CM}/a", 200, id="what is allowed"),
        pytest.param(rule(["get"], ["configmaps"]), "DELETE", f"{CM}/a", 403, id="another verb"),
        pytest.param(rule(["get"], ["secrets"]), "GET", f"{CM}/a", 403, id="another resource"),
        pytest.param(rule(["*"], ["*"]), "GET", f"{CM}/a", 200, id="everything in the namespace"),
        pytest.param(rule(["*"], ["*"]), "GET", "/api/v1/nodes", 403, id="nothing beyond it"),
        pytest.param(
            rule(["get"], ["configmaps"], resourceNames=["b"]), "GET", f"{CM}/a", 403, id="by name"
        ),
        pytest.param(rule(["get"], ["configmaps"]), "GET", CM, 403, id="list is not get"),
    ],
)
def test_rules(play: Play, given: Any, method: str, path: str, status: int) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(CM, configmap("a"))
        await api.post(f"{RBAC}/namespaces/default/roles", role("r", given))
        await api.post(f"{RBAC}/namespaces/default/rolebindings", binding("r"))
        assert (await ApiClient(api.handler, JANE)(method, path)).status == status

    play(story)


def test_roles_cannot_grant_more_than_their_writer_has(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        allowed = {"apiGroups": ["*"], "resources": ["roles", "rolebindings"], "verbs": ["*"]}
        own = role("r", {**allowed, "verbs": ["create", "get"]}, rule(["get"], ["configmaps"]))
        await api.post(f"{RBAC}/namespaces/default/roles", own)
        await api.post(f"{RBAC}/namespaces/default/rolebindings", binding("r"))
        jane = ApiClient(api.handler, JANE)
        path = f"{RBAC}/namespaces/default/roles"
        assert (await jane.post(path, role("mine", rule(["get"], ["configmaps"])))).status == 201
        error_response = await jane.post(path, role("more", rule(["get"], ["secrets"])))
        assert error_response.status == 403
        assert "not currently held" in error_response.object["message"]
        bound = await jane.post(
            f"{RBAC}/namespaces/default/rolebindings", binding("cluster-admin", "ClusterRole")
        )
        assert bound.status == 403

    play(story)


def test_view_edit_and_admin_are_aggregated(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(f"{RBAC}/namespaces/default/rolebindings", binding("view", "ClusterRole"))
        jane = ApiClient(api.handler, JANE)
        assert (await jane.get(CM)).status == 200
        assert (await jane.get("/api/v1/namespaces/default/secrets")).status == 403
        assert (await jane.post(CM, configmap("a"))).status == 403

    play(story)


def test_everybody_may_create_self_reviews(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "x"}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await ApiClient(api.handler, JANE).post(path, review)
        assert answer.object["status"] == {"allowed": False}
        assert (await api.post(path, review)).object["status"] == {"allowed": True}

    play(story)


def test_a_token_is_invalid_after_its_account_is_deleted(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        path = "/api/v1/namespaces/default/serviceaccounts"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}
        await api.post(path, account)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = (await api.post(f"{path}/bot/token", request)).object["status"]["token"]
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = (await api.post(reviews, review)).object["status"]
        assert status["user"]["username"] == "system:serviceaccount:default:bot"
        await api.delete(f"{path}/bot")
        assert "authenticated" not in (await api.post(reviews, review)).object["status"]
        forged = {**review, "spec": {"token": token[:-4] + "AAAA"}}
        assert "authenticated" not in (await api.post(reviews, forged)).object["status"]

    play(story)


def test_eviction_obeys_the_budget(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        import asyncio

        pods = "/api/v1/namespaces/default/pods"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
        }
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        await api.post(pods, pod)
        running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await api.patch(f"{pods}/p/status", {"status": running})
        await api.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
        await asyncio.sleep(1)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        error_response = await api.post(f"{pods}/p/eviction", eviction)
        assert error_response.status == 429
        assert error_response.object["details"]["causes"][0]["reason"] == "DisruptionBudget"

    play(story)


def test_an_existing_rsa_ca_is_used(tmp_path: Path) -> None:
    theirs = rsa.generate_private_key(65537, 2048)
    pem = theirs.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "of another")])
    clock = SystemClock()
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(theirs.public_key())
        .serial_number(7)
        .not_valid_before(clock.now() - timedelta(days=1))
        .not_valid_after(clock.now() + timedelta(days=1))
        .add_extension(x509.SubjectKeyIdentifier(b"theirs"), critical=False)
        .sign(theirs, hashes.SHA256())
    )
    (tmp_path / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    for file in ("ca.key", "tokens.key"):
        (tmp_path / file).write_bytes(pem)
    authority = CertificateAuthority(tmp_path, clock.now, name="kube-apiserver")
    issued = x509.load_pem_x509_certificate(authority.server(["127.0.0.1"]).certificate)
    issued.verify_directly_issued_by(made)
    held = issued.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert held.key_identifier == b"theirs"
    state = ObjectCache()
    tokens = ServiceAccountTokens(authority.token_key, state, clock)
    account = {"metadata": {"namespace": "default", "name": "a", "uid": "u"}}
    token, _ = tokens.sign(account, (), 600, None)
    assert (
        tokens.verify(token) is None
    )  # the account does not exist, although the signature is valid
    assert tokens.verified_claims(token) is not None
    assert tokens.verified_claims(token[:-4] + "AAAA") is None


def test_the_root_lists_what_is_served(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        found = await api("GET", "/")
        assert found.status == 200
        paths = found.object["paths"]
        assert {"/api/v1", "/apis/apps/v1", "/readyz"} <= set(paths)
        assert (await ApiClient(api.handler, JANE)("GET", "/")).status == 403

    play(story)
