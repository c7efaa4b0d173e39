"""
Client certificates that a control plane node signs with the cluster's CA key.

As ``kubeadm init`` does for its kubeconfig files: a cluster administrator and the node's own
kubelet. Client keys are new P-256 keys; the CA key may be RSA or elliptic curve.
"""

from datetime import datetime

from moxwell.errors import Invalid
from moxwell.kube.credentials import ApiIdentity, SecretText, StaticCredentials
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests.control_plane import GuestControlPlane
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair


def administrator(plane: GuestControlPlane, now: datetime) -> ApiAccess:
    """Access as ``system:masters``."""
    return _access(plane, "kubernetes-super-admin", "system:masters", now)


def kubelet(plane: GuestControlPlane, node: str, now: datetime) -> ApiAccess:
    """Access as the kubelet of a node."""
    return _access(plane, f"system:node:{node}", "system:nodes", now)


def _access(plane: GuestControlPlane, user: str, group: str, now: datetime) -> ApiAccess:
    config = CertificateConfig(common_name=user, organizations=(group,))
    pair = certificates.issue(config, _ca(plane), now)
    identity = ApiIdentity(certificate=pair.certificate.decode(), key=SecretText(pair.key.decode()))
    return ApiAccess(server=plane.url, ca=plane.ca, credentials=StaticCredentials(identity))


def _ca(plane: GuestControlPlane) -> KeyPair:
    """The cluster's CA, as the user data holds it."""
    ca = KeyPair(plane.ca.encode(), plane.ca_key.encode())
    try:
        matching = certificates.matches(ca)
    except ValueError as error:
        raise Invalid("the CA in the user data cannot be read") from error
    if not matching:
        raise Invalid("ca.crt and ca.key in the user data do not belong together")
    return ca
