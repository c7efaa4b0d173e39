"""Writes a kubeconfig with one context, a client certificate and everything embedded. Pure."""

import base64

import yaml

from moxwell.pki.certificates import KeyPair


def render(server: str, ca: bytes, client: KeyPair, name: str) -> str:
    """The text of a kubeconfig; ``name`` names its cluster, user and context."""
    user = {
        "client-certificate-data": _encode(client.certificate),
        "client-key-data": _encode(client.key),
    }
    cluster = {"server": server, "certificate-authority-data": _encode(ca)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "preferences": {},
    }
    return yaml.safe_dump(config, sort_keys=False)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
