"""
Simulates ``kubeadm join`` on a node.

Discovery reads ``cluster-info`` without verifying the server and checks the CA against the
configured hashes. TLS bootstrap then creates a CertificateSigningRequest with the bootstrap token
and waits for the certificate. An unreachable API server is retried until kubeadm's timeout; a wrong
hash or token is not retried.
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
from moxwell.kube.credentials import ApiIdentity, SecretText, StaticCredentials
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests.userdata import KubeadmJoin
from moxwell.pki.certificates import create_key, key_pem, load_certificates

Dial = Callable[[ApiAccess], Handler]

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False
)
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
TIMEOUT_SECONDS = 300
POLL_SECONDS = 2


class JoinDenied(Denied):
    """The cluster rejected the node."""

    reason = "JoinDenied"


@dataclass(frozen=True, slots=True)
class NodeKubeconfig:
    """The name of a node and its access to the API server, as in ``kubelet.conf``."""

    node_name: str
    access: ApiAccess


async def join_cluster(join: KubeadmJoin, dial: Dial, clock: Clock) -> NodeKubeconfig:
    """Join the cluster; raises Denied if rejected, Invalid for a broken configuration."""
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            trusted = _known(join) or await _discover(join, dial)
            return await _bootstrap(join, trusted, dial, clock)
        except Retryable as error:
            if clock.monotonic() >= deadline:
                raise Unreachable(f"timed out joining {join.endpoint}: {error}") from error
            await clock.sleep(POLL_SECONDS)


def _known(join: KubeadmJoin) -> ApiAccess | None:
    return ApiAccess(server=_url(join.endpoint), ca=join.ca) if join.ca else None


async def _discover(join: KubeadmJoin, dial: Dial) -> ApiAccess:
    untrusted = ApiAccess(server=_url(join.endpoint), insecure=True)
    found = await Kube(dial(untrusted)).get(CONFIG_MAPS, "cluster-info", "kube-public")
    config = kubeconfig.parse(found.get("data", {}).get("kubeconfig", ""))
    cluster = next(iter(config.clusters.values()), None)
    if cluster is None:
        raise Invalid("cluster-info names no cluster")
    ca_pem = base64.b64decode(cluster[0].certificate_authority_data).decode()
    if not join.unsafe_skip_ca and not _hashes(ca_pem) & set(join.ca_hashes):
        raise JoinDenied("the CA in cluster-info does not match any of caCertHashes")
    return ApiAccess(server=untrusted.server, ca=ca_pem)


def _hashes(ca_pem: str) -> set[str]:
    """kubeadm's CA certificate hashes: SHA-256 of each public key."""
    return {
        "sha256:" + hashlib.sha256(_public_key(certificate)).hexdigest()
        for certificate in load_certificates(ca_pem.encode())
    }


def _public_key(certificate: x509.Certificate) -> bytes:
    encoding = serialization.Encoding.DER
    return certificate.public_key().public_bytes(
        encoding, serialization.PublicFormat.SubjectPublicKeyInfo
    )


async def _bootstrap(
    join: KubeadmJoin, trusted: ApiAccess, dial: Dial, clock: Clock
) -> NodeKubeconfig:
    key = create_key()
    access = replace(trusted, credentials=StaticCredentials(credentials.token(join.token)))
    kube = Kube(dial(access), manager="kubelet")
    created = await kube.create(_signing_request(join.node_name, key), REQUESTS)
    certificate = await _wait_certificate(kube, created["metadata"]["name"], clock)
    identity = ApiIdentity(certificate=certificate, key=SecretText(key_pem(key).decode()))
    return NodeKubeconfig(join.node_name, replace(trusted, credentials=StaticCredentials(identity)))


def _signing_request(node_name: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
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


async def _wait_certificate(kube: Kube, name: str, clock: Clock) -> str:
    deadline = clock.monotonic() + TIMEOUT_SECONDS
    while clock.monotonic() < deadline:
        status = (await kube.get(REQUESTS, name)).get("status") or {}
        if status.get("certificate"):
            return base64.b64decode(status["certificate"]).decode()
        if any(c.get("type") == "Denied" for c in status.get("conditions") or ()):
            raise JoinDenied("the certificate request of this node was denied")
        await clock.sleep(POLL_SECONDS)
    raise Unreachable("the certificate request of this node was not signed in time")


def _url(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"https://{endpoint}"


class StoredKubeconfig(msgspec.Struct, frozen=True):
    """A :class:`NodeKubeconfig` as stored on the disk of the guest."""

    node_name: str
    server: str
    ca: str
    certificate: str
    key: str


async def save(membership: NodeKubeconfig) -> StoredKubeconfig:
    """Convert to the stored form."""
    access = membership.access
    identity = await access.credentials.identity()
    return StoredKubeconfig(
        membership.node_name, access.server, access.ca, identity.certificate, identity.key.reveal
    )


def restore(saved: StoredKubeconfig) -> NodeKubeconfig:
    """Convert from the stored form."""
    identity = ApiIdentity(certificate=saved.certificate, key=SecretText(saved.key))
    access = ApiAccess(server=saved.server, ca=saved.ca, credentials=StaticCredentials(identity))
    return NodeKubeconfig(saved.node_name, access)
