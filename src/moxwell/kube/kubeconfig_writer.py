"""Writes and reads a kubeconfig with one context and a client certificate. Pure."""

import base64

import yaml

from moxwell import yaml_documents
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


def client_certificate(text: str) -> bytes | None:
    """The client certificate of a kubeconfig, as PEM; None if it has none."""
    return _user_data(text, "client-certificate-data")


def client_key(text: str) -> bytes | None:
    """The key of the client certificate of a kubeconfig, as PEM; None if it has none."""
    return _user_data(text, "client-key-data")


def _user_data(text: str, field: str) -> bytes | None:
    try:
        user = yaml_documents.load(text)["users"][0]["user"]
        return base64.b64decode(user[field], validate=True)
    except (yaml.YAMLError, LookupError, TypeError, ValueError):
        return None


def server(text: str) -> str:
    """The URL of the API server in a kubeconfig; empty if it has none."""
    try:
        return str(yaml_documents.load(text)["clusters"][0]["cluster"]["server"])
    except (yaml.YAMLError, LookupError, TypeError):
        return ""


def authority(text: str) -> bytes | None:
    """The CA certificates of the API server in a kubeconfig, as PEM; None if it has none."""
    try:
        cluster = yaml_documents.load(text)["clusters"][0]["cluster"]
        return base64.b64decode(cluster["certificate-authority-data"], validate=True)
    except (yaml.YAMLError, LookupError, TypeError, ValueError):
        return None


def with_server(text: str, url: str) -> str:
    """The kubeconfig with another URL of the API server; an empty text stays empty."""
    if not text:
        return ""
    config = yaml_documents.load(text)
    for each in config["clusters"]:
        each["cluster"]["server"] = url
    return yaml.safe_dump(config, sort_keys=False)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
