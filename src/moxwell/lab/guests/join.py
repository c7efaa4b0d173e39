"""
``kubeadm join``, as a node sees it.

Discovery first: ``cluster-info`` is read from an API server that is not trusted yet, and its
authority must have one of the hashes the join names. Then TLS bootstrap: a certificate request with
the bootstrap token, signed by whoever signs there. Out flows a :class:`Membership`: a name and a
way to reach the API as that node. Nobody answering is tried again for as long as kubeadm would; a
wrong hash or token is not.
"""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moxwell.api.kinds import Resource
from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.errors import Denied, Invalid, Retryable, Unreachable
from moxwell.kube import credentials, kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.credentials import Fixed, Identity, Secret
from moxwell.kube.kubeconfig import Access
from moxwell.lab.guests.userdata import Join
from moxwell.pki import load_certificates

Dial = Callable[[Access], Handler]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False
)
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
PATIENCE_SECONDS = 300
POLL_SECONDS = 2


class NotAdmitted(Denied):
    """The cluster did not take this node in."""

    reason = "JoinRefused"


@dataclass(frozen=True, slots=True)
class Membership:
    """A node's own identity in its cluster."""

    node_name: str
    access: Access


async def join_cluster(join: Join, dial: Dial, clock: Clock) -> Membership:
    """Join, however long it may take; refused means Denied, a broken configuration Invalid."""
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            trusted = await _discover(join, dial)
            return await _bootstrap(join, trusted, dial, clock)
        except Retryable as error:
            if clock.monotonic() >= deadline:
                raise Unreachable(f"gave up joining {join.endpoint}: {error}") from error
            await clock.sleep(POLL_SECONDS)


async def _discover(join: Join, dial: Dial) -> Access:
    untrusted = Access(server=_url(join.endpoint), insecure=True)
    found = await Kube(dial(untrusted)).get(CONFIG_MAPS, "cluster-info", "kube-public")
    config = kubeconfig.parse(found.get("data", {}).get("kubeconfig", ""))
    cluster = next(iter(config.clusters.values()), None)
    if cluster is None:
        raise Invalid("cluster-info names no cluster")
    authority = base64.b64decode(cluster[0].certificate_authority_data).decode()
    if not join.unsafe_skip_ca and not _hashes(authority) & set(join.ca_hashes):
        raise NotAdmitted("the authority in cluster-info has none of the hashes the join expects")
    return Access(server=untrusted.server, ca=authority)


def _hashes(authority: str) -> set[str]:
    """kubeadm's pins: SHA-256 over each certificate's public key."""
    return {
        "sha256:" + hashlib.sha256(_public_key(certificate)).hexdigest()
        for certificate in load_certificates(authority.encode())
    }


def _public_key(certificate: x509.Certificate) -> bytes:
    encoding = serialization.Encoding.DER
    return certificate.public_key().public_bytes(
        encoding, serialization.PublicFormat.SubjectPublicKeyInfo
    )


async def _bootstrap(join: Join, trusted: Access, dial: Dial, clock: Clock) -> Membership:
    key = ec.generate_private_key(ec.SECP256R1())
    access = replace(trusted, credentials=Fixed(credentials.token(join.token)))
    kube = Kube(dial(access), manager="kubelet")
    made = await kube.create(_request(join.node_name, key), REQUESTS)
    certificate = await _signed(kube, made["metadata"]["name"], clock)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    identity = Identity(certificate=certificate, key=Secret(private))
    return Membership(join.node_name, replace(trusted, credentials=Fixed(identity)))


def _request(node_name: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node_name}"),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    pem = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return {
        "apiVersion": REQUESTS.api_version,
        "kind": REQUESTS.kind,
        "metadata": {"generateName": "node-csr-"},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth"],
        },
    }


async def _signed(kube: Kube, name: str, clock: Clock) -> str:
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while clock.monotonic() < deadline:
        status = (await kube.get(REQUESTS, name)).get("status") or {}
        if status.get("certificate"):
            return base64.b64decode(status["certificate"]).decode()
        if any(c.get("type") == "Denied" for c in status.get("conditions") or ()):
            raise NotAdmitted("the certificate request of this node was denied")
        await clock.sleep(POLL_SECONDS)
    raise Unreachable("nobody signed the certificate request of this node")


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"https://{endpoint}"


class Saved(msgspec.Struct, frozen=True):
    """A membership as it lies on the guest's disk."""

    node_name: str
    server: str
    ca: str
    certificate: str
    key: str


async def save(membership: Membership) -> Saved:
    """What a guest must remember to come back after a restart."""
    access = membership.access
    identity = await access.credentials.identity()
    return Saved(
        membership.node_name, access.server, access.ca, identity.certificate, identity.key.reveal
    )


def restore(saved: Saved) -> Membership:
    """The membership that was saved."""
    identity = Identity(certificate=saved.certificate, key=Secret(saved.key))
    access = Access(server=saved.server, ca=saved.ca, credentials=Fixed(identity))
    return Membership(saved.node_name, access)
