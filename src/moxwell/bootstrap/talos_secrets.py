"""
The secrets of a cluster with Talos control planes: CAs, keys and tokens.

The text is that of Talos' secrets bundle (``talosctl gen secrets``), which Cluster API's Talos
providers keep in the Secret ``<cluster>-talos``; private keys are in the form that Talos reads.
"""

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from moxwell import yaml_documents
from moxwell.errors import Invalid
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig, KeyPair

Json = dict[str, Any]
ADMINISTRATOR = CertificateConfig(common_name="", organizations=("os:admin",))
CALL_LIFETIME = timedelta(hours=1)  # of the certificates of our own calls
KEY_BYTES = 32
_TOKEN_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class TalosSecrets:
    """All secrets of a cluster; the certificates are CAs."""

    cluster_id: str
    cluster_secret: str = field(repr=False)
    bootstrap_token: str = field(repr=False)  # with which kubelets join
    secretbox: str = field(repr=False)  # encrypts Secrets in etcd
    trustd_token: str = field(repr=False)  # with which nodes request certificates of Talos' API
    etcd: KeyPair
    kubernetes: KeyPair
    aggregator: KeyPair
    talos: KeyPair  # of Talos' API
    service_account: bytes = field(repr=False)


def create_secrets(now: datetime) -> TalosSecrets:
    """New secrets."""
    return TalosSecrets(
        cluster_id=base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode(),
        cluster_secret=_random(),
        bootstrap_token=_token(),
        secretbox=_random(),
        trustd_token=_token(),
        etcd=_new_ca("etcd", now),
        kubernetes=_new_ca("kubernetes", now),
        aggregator=_new_ca("front-proxy", now),
        talos=certificates.create_talos_ca(now),
        service_account=certificates.as_talos_key(certificates.create_key()),
    )


def administrator(found: TalosSecrets, now: datetime, lifetime: timedelta | None = None) -> KeyPair:
    """A client certificate for Talos' API with all rights."""
    return certificates.issue(ADMINISTRATOR, found.talos, now, lifetime)


def _new_ca(name: str, now: datetime) -> KeyPair:
    pair = certificates.create_ca(name, now)
    key = certificates.load_key(pair.key)
    assert isinstance(key, ec.EllipticCurvePrivateKey), "our own CAs have P-256 keys"
    return KeyPair(pair.certificate, certificates.as_talos_key(key))


def _random() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _token() -> str:
    parts = ("".join(secrets.choice(_TOKEN_LETTERS) for _ in range(size)) for size in (6, 16))
    return ".".join(parts)


# The text of the bundle


def as_text(found: TalosSecrets) -> str:
    """The secrets bundle, in YAML."""
    pairs = {
        "etcd": found.etcd,
        "k8s": found.kubernetes,
        "k8saggregator": found.aggregator,
        "os": found.talos,
    }
    certs: Json = {name: encoded_pair(pair) for name, pair in pairs.items()}
    certs["k8sserviceaccount"] = {"key": encoded(found.service_account)}
    bundle = {
        "cluster": {"id": found.cluster_id, "secret": found.cluster_secret},
        "secrets": {
            "bootstraptoken": found.bootstrap_token,
            "secretboxencryptionsecret": found.secretbox,
        },
        "trustdinfo": {"token": found.trustd_token},
        "certs": certs,
    }
    return yaml.safe_dump(bundle, sort_keys=False)


def parse(text: str | bytes) -> TalosSecrets:
    """Read a secrets bundle; raises Invalid, with no text of it, if a part is missing."""
    try:
        bundle = yaml_documents.load(text)
        certs, secret = bundle["certs"], bundle["secrets"]
        return TalosSecrets(
            cluster_id=bundle["cluster"]["id"],
            cluster_secret=bundle["cluster"]["secret"],
            bootstrap_token=secret["bootstraptoken"],
            secretbox=secret["secretboxencryptionsecret"],
            trustd_token=bundle["trustdinfo"]["token"],
            etcd=_pair(certs["etcd"]),
            kubernetes=_pair(certs["k8s"]),
            aggregator=_pair(certs["k8saggregator"]),
            talos=_pair(certs["os"]),
            service_account=base64.b64decode(certs["k8sserviceaccount"]["key"]),
        )
    except (yaml.YAMLError, KeyError, TypeError, ValueError):  # their texts may contain keys
        raise Invalid("the secrets bundle of Talos cannot be read, or a part is missing") from None


def encoded_pair(pair: KeyPair) -> Json:
    """A certificate and its key, as in machine configurations."""
    return {"crt": encoded(pair.certificate), "key": encoded(pair.key)}


def encoded(pem: bytes) -> str:
    """PEM in base64."""
    return base64.b64encode(pem).decode()


def _pair(found: Mapping[str, str]) -> KeyPair:
    return KeyPair(base64.b64decode(found["crt"]), base64.b64decode(found["key"]))


# The configuration of talosctl


def client_config(
    found: TalosSecrets, cluster: str, endpoints: tuple[str, ...], client: KeyPair
) -> str:
    """A ``talosconfig``: the CA, a client certificate, and the addresses of the control planes."""
    context = {
        "endpoints": list(endpoints),
        "ca": encoded(found.talos.certificate),
        "crt": encoded(client.certificate),
        "key": encoded(client.key),
    }
    return yaml.safe_dump({"context": cluster, "contexts": {cluster: context}}, sort_keys=False)
