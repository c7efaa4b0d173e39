"""
Signs and verifies service account tokens.

A token is valid when this server's key signed it, it has not expired, and the service account and
the bound object exist with the same uid. Deleting a service account therefore invalidates its
tokens at once.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from moxwell.api.requests import UserInfo
from moxwell.clock import Clock
from moxwell.embedded.apiserver.metadata import new_uid
from moxwell.embedded.apiserver.object_cache import ObjectCache, encode
from moxwell.pki.certificates import SigningKey

Object = dict[str, Any]
AUDIENCE = "https://kubernetes.default.svc"
_GROUP_RESOURCES = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _from_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A verified token."""

    user: UserInfo
    audiences: tuple[str, ...]


class ServiceAccountTokens:
    """Signs and verifies tokens."""

    def __init__(self, key: SigningKey, cache: ObjectCache, clock: Clock) -> None:
        self._key, self._cache, self._clock = key, cache, clock

    def __repr__(self) -> str:
        return "Tokens()"

    def sign(
        self, account: Object, audiences: Sequence[str], seconds: int, bound: Object | None
    ) -> tuple[str, int]:
        """Sign a token for a service account; returns it with its expiration time."""
        meta, now = account["metadata"], int(self._clock.now().timestamp())
        named: Object = {
            "namespace": meta["namespace"],
            "serviceaccount": {"name": meta["name"], "uid": meta["uid"]},
        }
        if bound is not None:
            named[bound["kind"].lower()] = {"name": bound["name"], "uid": bound["uid"]}
        claims = {
            "aud": list(audiences) or [AUDIENCE],
            "exp": now + seconds,
            "iat": now,
            "iss": AUDIENCE,
            "jti": new_uid(),
            "kubernetes.io": named,
            "nbf": now,
            "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
        }
        curve = isinstance(self._key, ec.EllipticCurvePrivateKey)
        head = _base64url(encode({"alg": "ES256" if curve else "RS256", "typ": "JWT"}))
        text = f"{head}.{_base64url(encode(claims))}"
        return f"{text}.{_base64url(_signature(self._key, text.encode()))}", now + seconds

    def verify(self, token: str, audiences: Sequence[str] = ()) -> VerifiedToken | None:
        """Verify a token; None if it is invalid."""
        claims = self.verified_claims(token)
        if claims is None or claims.get("exp", 0) <= self._clock.now().timestamp():
            return None
        wanted = tuple(audiences) or (AUDIENCE,)
        shared = tuple(a for a in wanted if a in claims.get("aud", ()))
        user = self._user(claims.get("kubernetes.io") or {})
        return VerifiedToken(user, shared) if shared and user is not None else None

    def verified_claims(self, token: str) -> Object | None:
        """Return the claims of a token with a valid signature, whoever it is for; else None."""
        try:
            head, body, signature = token.split(".")
            _verify(self._key, _from_base64url(signature), f"{head}.{body}".encode())
            found: Object = json.loads(_from_base64url(body))
        except (ValueError, binascii.Error, InvalidSignature):
            return None
        return found

    def _user(self, named: Object) -> UserInfo | None:
        namespace, account = named.get("namespace", ""), named.get("serviceaccount") or {}
        record = self._cache.find("serviceaccounts", f"{namespace}/{account.get('name')}")
        if record is None or record.uid != account.get("uid"):
            return None
        extra: dict[str, tuple[str, ...]] = {}
        for kind, group_resource in _GROUP_RESOURCES.items():
            bound = named.get(kind.lower())
            if bound is None:
                continue
            key = bound["name"] if kind == "Node" else f"{namespace}/{bound['name']}"
            found = self._cache.find(group_resource, key)
            if found is None or found.uid != bound.get("uid"):
                return None
            extra[f"authentication.kubernetes.io/{kind.lower()}-name"] = (bound["name"],)
            extra[f"authentication.kubernetes.io/{kind.lower()}-uid"] = (bound["uid"],)
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
        name = f"system:serviceaccount:{namespace}:{record.name}"
        return UserInfo(name=name, groups=groups, uid=record.uid, extra=extra)


def _signature(key: SigningKey, text: bytes) -> bytes:
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return key.sign(text, padding.PKCS1v15(), hashes.SHA256())
    r, s = decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _verify(key: SigningKey, signature: bytes, text: bytes) -> None:
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        key.public_key().verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
        return
    r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
    key.public_key().verify(encode_dss_signature(r, s), text, ec.ECDSA(hashes.SHA256()))
