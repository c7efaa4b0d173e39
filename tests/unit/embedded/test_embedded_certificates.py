"""CertificateSigningRequests of kubelets: approval and signing."""

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moxwell.bootstrap import join_tokens
from moxwell.controllers.karpenter.proxmox import join_approver
from moxwell.controllers.karpenter.proxmox.join_approver import BoundToken
from moxwell.embedded.controllermanager.csrapprover import plan as approver
from moxwell.embedded.controllermanager.csrsigner import plan as signer
from moxwell.pki.certificates import create_ca, load_certificate, load_key
from moxwell.pki.kubelet_requests import KUBELET_SIGNER
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Merge, Writes

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BOUND = ["system:bootstrappers", join_tokens.GROUP]
NODE, GROUP = "system:node:n1", "system:nodes"


def pem(name: str = NODE, group: str = GROUP) -> str:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return base64.b64encode(csr.public_bytes(serialization.Encoding.PEM)).decode()


def request(of: str = "", **spec: Any) -> Json:
    body = {
        "signerName": KUBELET_SIGNER,
        "request": of or pem(),
        "usages": ["client auth"],
        "username": "system:bootstrap:abc",
        "groups": ["system:bootstrappers"],
    }
    return {"metadata": {"name": "csr"}, "spec": body | spec}


@pytest.mark.parametrize(
    ("obj", "decision"),
    [
        pytest.param(request(), "Approved", id="a node with a bootstrap token"),
        pytest.param(request(username=NODE, groups=[]), "Approved", id="the node itself"),
        pytest.param(request(username="eve", groups=[]), "Denied", id="another user"),
        pytest.param(request(pem("admin", GROUP)), "Denied", id="another name"),
        pytest.param(request(pem(NODE, "system:masters")), "Denied", id="another organization"),
        pytest.param(request(usages=["server auth"]), "Denied", id="another usage"),
        pytest.param(request(signerName="other"), None, id="another signer"),
        pytest.param(request(groups=BOUND), None, id="a token that is bound to a node"),
    ],
)
def test_decision(obj: Json, decision: str | None) -> None:
    move = approver.next_move(obj)
    if decision is None:
        assert move == Done()
        return
    assert isinstance(move, Writes)
    (write,) = move.writes
    assert isinstance(write, Merge)
    assert write.subresource == "approval"
    assert [c["type"] for c in write.change["status"]["conditions"]] == [decision]


BOUND_REQUESTS = [
    pytest.param(request(groups=BOUND), "n1", "Approved", "", id="the node of the token"),
    pytest.param(request(groups=BOUND), "n2", "Denied", "for the node n2", id="another node"),
    pytest.param(request(groups=BOUND), "", "Denied", "revoked", id="a token that is revoked"),
    pytest.param(request(pem("admin"), groups=BOUND), "n1", "Denied", "subject", id="no node"),
    pytest.param(request(), "n1", None, "", id="a token that is not bound"),
    pytest.param(request(username=NODE, groups=BOUND), "n1", None, "", id="no token"),
]


@pytest.mark.parametrize(("obj", "node", "decision", "message"), BOUND_REQUESTS)
def test_a_bound_token_is_for_one_node(
    obj: Json, node: str, decision: str | None, message: str
) -> None:
    move = join_approver.next_move(obj, BoundToken(node))
    if decision is None:
        assert move == Done()
        return
    assert isinstance(move, Writes)
    (write,) = move.writes
    assert isinstance(write, Merge)
    (condition,) = write.change["status"]["conditions"]
    assert condition["type"] == decision
    assert message in condition["message"]


def test_a_request_is_decided_once() -> None:
    decided = {"status": {"conditions": [{"type": "Denied"}]}}
    assert approver.next_move(request() | decided) == Done()


@pytest.mark.parametrize(
    ("decisions", "issued", "signed"),
    [
        pytest.param({"Approved"}, False, True, id="approved"),
        pytest.param(set(), False, False, id="not decided"),
        pytest.param({"Approved", "Failed"}, False, False, id="failed"),
        pytest.param({"Approved"}, True, False, id="signed already"),
    ],
)
def test_what_is_signed(decisions: set[str], issued: bool, signed: bool) -> None:
    seen = signer.ObservedRequest(NOW, frozenset(decisions), issued)
    assert isinstance(signer.next_move(request(), seen), signer.SignCertificate) is signed


def test_a_certificate_is_issued_by_the_ca_for_the_node() -> None:
    ca = create_ca("test", NOW)
    authority = load_certificate(ca.certificate)
    text = signer.sign(pem(), authority, load_key(ca.key), NOW)
    issued = x509.load_pem_x509_certificate(base64.b64decode(text))
    assert issued.issuer == authority.subject
    assert issued.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == NODE
    assert issued.not_valid_after_utc == NOW + signer.LIFETIME
