"""
Authentication with bootstrap tokens, which a machine uses before it has a certificate.

``id.secret`` is valid while the Secret ``bootstrap-token-id`` in ``kube-system`` holds the secret,
allows authentication and has not expired. The user is ``system:bootstrap:id``; the Secret can add
groups below ``system:bootstrappers:``.
"""

import base64
import hmac
import re
from datetime import datetime
from typing import Any

from moxwell.api.requests import UserInfo
from moxwell.clock import Clock
from moxwell.embedded.apiserver.object_cache import ObjectCache

_TOKEN = re.compile(r"^([a-z0-9]{6})\.([a-z0-9]{16})$")
_GROUP = re.compile(r"^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$")
TYPE = "bootstrap.kubernetes.io/token"


def authenticate(token: str, cache: ObjectCache, clock: Clock) -> UserInfo | None:
    """Return the user of a bootstrap token, or None if it is invalid."""
    match = _TOKEN.match(token)
    record = cache.find("secrets", f"kube-system/bootstrap-token-{match[1]}") if match else None
    if match is None or record is None:
        return None
    secret = record.object()
    data = {key: _text(value) for key, value in (secret.get("data") or {}).items()}
    good = secret.get("type") == TYPE and data.get("token-id") == match[1]
    good &= data.get("usage-bootstrap-authentication") == "true"
    good &= hmac.compare_digest(data.get("token-secret", "").encode(), match[2].encode())
    if not good or _is_over(data, clock):
        return None
    extra = [g for g in data.get("auth-extra-groups", "").split(",") if _GROUP.match(g)]
    groups = ("system:bootstrappers", *extra, "system:authenticated")
    return UserInfo(name=f"system:bootstrap:{match[1]}", groups=groups)


def _is_over(data: dict[str, str], clock: Clock) -> bool:
    until = data.get("expiration")
    if not until:
        return False
    try:
        return datetime.fromisoformat(until) <= clock.now()
    except (ValueError, TypeError):  # not a time, or a time without a zone
        return True


def _text(value: Any) -> str:
    try:
        return base64.b64decode(str(value), validate=True).decode()
    except ValueError:
        return ""
