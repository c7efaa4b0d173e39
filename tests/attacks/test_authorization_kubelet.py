"""Attacks of a tenant's kubelet: it reads and writes what does not belong to its node."""

import base64
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moxwell.api.requests import UserInfo
from moxwell.embedded.apiserver.auth import bootstrap
from moxwell.embedded.apiserver.auth.node_graph import NodeGraph
from moxwell.embedded.apiserver.auth.node_restriction import is_forbidden_label
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.apiserver.storage.settings import StorageSettings
from moxwell.embedded.controllermanager.csrsigner.plan import ObservedRequest, next_move
from moxwell.pki.kubelet_requests import denial
from moxwell.runtime.move import Done
from moxwell.testing.api_calls import MERGE, ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

CORE = "/api/v1/namespaces/default"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
GENEROUS = 100 << 20
GROUPS = ("system:nodes", "system:authenticated")
KUBELET = UserInfo(name="system:node:n1", groups=GROUPS)
Story = Callable[[ApiClient, ApiClient], Awaitable[None]]


def pod(name: str, node: str, secret: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "registry.example/x:1"}],
            "volumes": [{"name": "v", "secret": {"secretName": secret}}],
        },
    }


def attack(story: Story) -> None:
    """Play a story with two nodes; each runs a pod with a Secret of its own."""

    async def main() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            admin, kubelet = ApiClient(server), ApiClient(server, KUBELET)
            for node in ("n1", "n2"):
                meta = {"apiVersion": "v1", "metadata": {"name": node}}
                await admin("POST", "/api/v1/nodes", {**meta, "kind": "Node"})
                await admin("POST", f"{CORE}/secrets", {**meta, "kind": "Secret"})
                made = await admin("POST", f"{CORE}/pods", pod(f"on-{node}", node, node))
                assert made.status == 201, made.object
            await story(admin, kubelet)

    run_virtual(main())


def test_a_kubelet_reads_the_secrets_of_its_own_pods_only() -> None:
    async def story(admin: ApiClient, kubelet: ApiClient) -> None:
        assert (await kubelet("GET", f"{CORE}/secrets/n1")).status == 200
        assert (await kubelet("GET", f"{CORE}/secrets/n2")).status == 403
        assert (await kubelet("GET", f"{CORE}/secrets")).status == 403
        assert (await kubelet("GET", "/api/v1/secrets", watch="true")).status == 403
        await admin("DELETE", f"{CORE}/pods/on-n1", {"gracePeriodSeconds": 0})
        assert (await kubelet("GET", f"{CORE}/secrets/n1")).status == 403

    attack(story)


@pytest.mark.parametrize("selector", ["spec.nodeName=n2", "spec.nodeName!=n1", ""])
def test_a_kubelet_lists_the_pods_of_its_own_node_only(selector: str) -> None:
    async def story(admin: ApiClient, kubelet: ApiClient) -> None:
        path = "/api/v1/pods"
        assert (await kubelet("GET", path, fieldSelector="spec.nodeName=n1")).status == 200
        assert (await kubelet("GET", path, fieldSelector=selector)).status == 403

    attack(story)


def test_a_kubelet_does_not_create_a_pod_to_read_a_secret() -> None:
    async def story(admin: ApiClient, kubelet: ApiClient) -> None:
        node = (await admin("GET", "/api/v1/nodes/n1")).object["metadata"]
        plain = pod("bait", "n1", "n2")
        assert (await kubelet("POST", f"{CORE}/pods", plain)).status == 403
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["uid"]}
        mirror = pod("bait", "n1", "n2")
        mirror["metadata"] |= {
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [{**owner, "controller": True}],
        }
        assert (await kubelet("POST", f"{CORE}/pods", mirror)).status == 403
        assert (await kubelet("GET", f"{CORE}/secrets/n2")).status == 403
        mirror["spec"].pop("volumes")
        assert (await kubelet("POST", f"{CORE}/pods", mirror)).status == 201

    attack(story)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}},
        {"spec": {"taints": []}},
        {"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}
        ]}},
    ],
)  # fmt: skip
def test_a_kubelet_does_not_attract_workloads(change: dict[str, Any]) -> None:
    async def story(admin: ApiClient, kubelet: ApiClient) -> None:
        assert (await kubelet("PATCH", "/api/v1/nodes/n1", change, kind=MERGE)).status == 403
        harmless = {"metadata": {"labels": {"example.com/a": "b"}}}
        assert (await kubelet("PATCH", "/api/v1/nodes/n1", harmless, kind=MERGE)).status == 200
        assert (await kubelet("PATCH", "/api/v1/nodes/n2", harmless, kind=MERGE)).status == 403

    attack(story)


def test_a_kubelet_gets_tokens_for_its_own_pods_only() -> None:
    async def story(admin: ApiClient, kubelet: ApiClient) -> None:
        async def token(name: str) -> int:
            found = (await admin("GET", f"{CORE}/pods/{name}")).object["metadata"]
            ref = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": found["uid"]}
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"boundObjectRef": ref},
            }
            return (await kubelet("POST", f"{CORE}/serviceaccounts/default/token", body)).status

        assert await token("on-n1") == 201
        assert await token("on-n2") == 403

    attack(story)


def csr(*names: str, organization: str = "system:nodes") -> str:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)]
    parts += [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names]
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


def request(pem: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "x"},
        "spec": {
            "request": pem,
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["client auth"],
            **spec,
        },
    }


@pytest.mark.parametrize("names", [("system:node:n2",), ("system:node:n2", "system:node:n1"), ()])
def test_a_kubelet_does_not_request_the_certificate_of_another(names: tuple[str, ...]) -> None:
    async def story(admin: ApiClient, kubelet: ApiClient) -> None:
        assert (await kubelet("POST", CSRS, request(csr(*names)))).status == 403
        own = request(csr("system:node:n1"))
        assert (await kubelet("POST", CSRS, own)).status == 201
        approval = {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}
        path = f"{CSRS}/x/approval"
        assert (await kubelet("PATCH", path, approval, kind=MERGE)).status == 403

    attack(story)


@pytest.mark.parametrize(
    "names, organization",
    [
        (("system:node:n1",), "system:masters"),
        (("system:node:n", "1"), "system:nodes"),  # joined, they are the name of the requester
        (("kubernetes-admin",), "system:nodes"),
        ((), "system:nodes"),
    ],
)
def test_only_a_node_certificate_is_approved(names: tuple[str, ...], organization: str) -> None:
    pem = csr(*names, organization=organization)
    asked = request(pem, username="system:node:n1", groups=["system:bootstrappers"])
    assert "subject" in denial(asked["spec"])
    approved = ObservedRequest(datetime(2026, 1, 1, tzinfo=UTC), frozenset(["Approved"]))
    assert isinstance(next_move(asked, approved), Done)  # not signed, even if approved by hand


def test_a_request_that_is_none_is_denied() -> None:
    assert denial(request(base64.b64encode(b"no request").decode())["spec"])


def test_a_masters_certificate_is_never_requested() -> None:
    async def story(admin: ApiClient, kubelet: ApiClient) -> None:
        pem = csr("me", organization="system:masters")
        asked = request(pem, signerName="kubernetes.io/kube-apiserver-client")
        assert (await admin("POST", CSRS, asked)).status == 403

    attack(story)


def test_the_binding_of_earlier_versions_loses_the_kubelets() -> None:
    found = [o for r, o in bootstrap.objects() if r == bootstrap.BINDINGS]
    default = next(o for o in found if o["metadata"]["name"] == "system:node")
    subject = {"kind": "Group", "name": "system:nodes", "apiGroup": bootstrap.GROUP}
    changed = bootstrap.reconciled({**default, "subjects": [subject]}, default)
    assert changed is not None
    assert "subjects" not in changed


def test_the_default_roles_are_completed_below_the_quota_only(tmp_path: Path) -> None:
    """A database of an earlier version that is full is served; its roles change later."""

    async def served(quota: int) -> list[Any]:
        limits = StorageSettings(quota_bytes=quota)
        async with EmbeddedApiServer(
            path=tmp_path / "db", clock=LoopClock(), storage=limits
        ) as server:
            api = ApiClient(server)
            path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:node"
            if quota == GENEROUS:
                subject = {"kind": "Group", "name": "system:nodes", "apiGroup": bootstrap.GROUP}
                await api("PATCH", path, {"subjects": [subject]}, kind=MERGE)
            return (await api("GET", path)).object.get("subjects") or []

    assert len(run_virtual(served(GENEROUS))) == 1
    assert len(run_virtual(served(1_000))) == 1
    assert run_virtual(served(GENEROUS - 1)) == []


# Properties


@pytest.mark.parametrize("seed", range(20))
def test_the_graph_relates_a_secret_to_the_nodes_of_its_pods(seed: int) -> None:
    """After random changes the graph answers what a search through all pods answers."""
    dice, graph, pods = random.Random(seed), NodeGraph(), dict[str, dict[str, Any]]()
    names = ("a", "b", "c")
    for _ in range(200):
        key = dice.choice("pqrs")
        if dice.random() < 0.4:
            graph.drop_pod(key)
            pods.pop(key, None)
        else:
            pods[key] = pod(key, dice.choice(("n1", "n2", "")), dice.choice(names))
            graph.put_pod(key, pods[key])
        for node in ("n1", "n2"):
            for name in names:
                wanted = any(
                    p["spec"]["nodeName"] == node
                    and p["spec"]["volumes"][0]["secret"]["secretName"] == name
                    for p in pods.values()
                )
                assert graph.is_related(node, "secrets", "default", name) is wanted


@pytest.mark.parametrize(
    "label, forbidden",
    [
        ("example.com/a", False),
        ("plain", False),
        ("kubernetes.io/hostname", False),
        ("node.kubernetes.io/anything", False),
        ("x.kubelet.kubernetes.io/y", False),
        ("kubernetes.io/anything", True),
        ("x.k8s.io/y", True),
        ("node-role.kubernetes.io/worker", True),
        ("x.node-restriction.kubernetes.io/y", True),
        ("notkubernetes.io/y", False),
    ],
)
def test_labels_of_a_node(label: str, forbidden: bool) -> None:
    assert is_forbidden_label(label) is forbidden
