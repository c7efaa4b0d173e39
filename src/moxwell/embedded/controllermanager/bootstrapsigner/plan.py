"""
Signs the kubeconfig in ``kube-public/cluster-info`` for each bootstrap token. Pure.

A signature is a JSON Web Signature without its payload, with HMAC SHA-256 and the secret of the
token as key. With it a node that only knows a token can trust the kubeconfig.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from moxwell.embedded.controllermanager.resources import CONFIG_MAPS
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Merge, Writes

Json = Mapping[str, Any]
NAME, NAMESPACE, TOKENS = "cluster-info", "kube-public", "kube-system"
KUBECONFIG, PREFIX = "kubeconfig", "jws-kubeconfig-"
TYPE = "bootstrap.kubernetes.io/token"
_ID = re.compile(r"[a-z0-9]{6}")


def next_move(info: Json | None, secrets: Iterable[Json], now: datetime) -> WriteMove:
    """Write the signatures that lack or differ, and remove those of tokens that are gone."""
    data = (info or {}).get("data") or {}
    text = data.get(KUBECONFIG)
    if not text:
        return Done()
    tokens = dict(t for s in secrets if (t := signing_token(s, now)) is not None)
    wanted = {f"{PREFIX}{key}": signature(text, key, secret) for key, secret in tokens.items()}
    change = {k: v for k, v in wanted.items() if data.get(k) != v}
    change |= {k: None for k in data if k.startswith(PREFIX) and k not in wanted}
    if not change:
        return Done()
    return Writes((Merge(CONFIG_MAPS, NAME, {"data": change}, NAMESPACE),))


def is_signed(info: Json | None, secret: Json, now: datetime) -> bool:
    """Whether ``cluster-info`` has the right signature for a token, none if it may not sign."""
    data = (info or {}).get("data") or {}
    text = data.get(KUBECONFIG)
    if not text:
        return True
    token, name = signing_token(secret, now), str(secret["metadata"]["name"])
    wanted = signature(text, *token) if token is not None else None
    return bool(data.get(PREFIX + name.removeprefix("bootstrap-token-")) == wanted)


def signature(text: str, token_id: str, secret: str) -> str:
    """The detached signature of a kubeconfig."""
    header = {"alg": "HS256", "kid": token_id}
    head = _encoded(json.dumps(header, separators=(",", ":")).encode())
    signed = f"{head}.{_encoded(text.encode())}".encode()
    return f"{head}..{_encoded(hmac.digest(secret.encode(), signed, hashlib.sha256))}"


def signing_token(secret: Json, now: datetime) -> tuple[str, str] | None:
    """Id and secret of a token that may sign now; None for any other Secret."""
    data = {key: _text(value) for key, value in (secret.get("data") or {}).items()}
    token_id, key = data.get("token-id", ""), data.get("token-secret", "")
    good = (
        secret.get("type") == TYPE and secret["metadata"]["name"] == f"bootstrap-token-{token_id}"
    )
    good &= bool(_ID.fullmatch(token_id)) and bool(key)
    good &= data.get("usage-bootstrap-signing") == "true"
    return (token_id, key) if good and not _is_over(data.get("expiration"), now) else None


def _is_over(until: str | None, now: datetime) -> bool:
    if not until:
        return False
    try:
        return datetime.fromisoformat(until) <= now
    except (ValueError, TypeError):  # not a time, or a time without a zone
        return True


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _text(value: Any) -> str:
    try:
        return base64.b64decode(str(value), validate=True).decode()
    except ValueError:
        return ""
