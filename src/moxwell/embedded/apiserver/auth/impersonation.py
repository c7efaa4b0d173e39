"""
Impersonation: a request with ``Impersonate-*`` headers is handled as another user.

The requester needs the verb ``impersonate`` on the user or service account, on every group, on the
uid and on every extra value. The constrained verbs (``impersonate:user-info`` and others) are not
evaluated. Repeated headers are joined with a newline, which no header value contains.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import unquote

from moxwell.api.requests import Request, UserInfo
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth.policy_rules import AuthorizationAttributes
from moxwell.embedded.apiserver.auth.rbac import Authorizer, denied
from moxwell.embedded.apiserver.request_info import ADMIN

PREFIX = "impersonate-"
EXTRA = "impersonate-extra-"
REPEATED = "\n"
_AUTHENTICATION = "authentication.k8s.io"
_ACCOUNT = re.compile(r"^system:serviceaccount:([^:]+):([^:]+)$")
_UNAUTHENTICATED, _AUTHENTICATED = "system:unauthenticated", "system:authenticated"


def impersonate(request: Request, authorizer: Authorizer) -> Request:
    """The request as the impersonated user; the request itself without such headers."""
    asked = {k: v for k, v in request.headers.items() if k.startswith(PREFIX) and v}
    if not asked:
        return request
    requester, wanted = request.user or ADMIN, _wanted(asked)
    for attributes in _attributes(wanted):
        decision = authorizer.decide(requester, attributes)
        if not decision.allowed:
            raise denied(requester, attributes, decision.reason)
    headers = {k: v for k, v in request.headers.items() if not k.startswith(PREFIX)}
    return replace(request, headers=headers, user=_with_groups(wanted))


def requested_user(headers: Mapping[str, str]) -> UserInfo | None:
    """The user that the headers name, not yet authorized; None if they name none."""
    asked = {k: v for k, v in headers.items() if k.startswith(PREFIX) and v}
    return _with_groups(_wanted(asked)) if "impersonate-user" in asked else None


def _wanted(asked: Mapping[str, str]) -> UserInfo:
    if "impersonate-user" not in asked:
        raise status_errors.bad_request(
            f"requested {', '.join(sorted(asked))} without impersonating a user"
        )
    extra = {
        unquote(name.removeprefix(EXTRA)): tuple(value.split(REPEATED))
        for name, value in asked.items()
        if name.startswith(EXTRA)
    }
    groups = asked.get("impersonate-group", "")
    return UserInfo(
        name=asked["impersonate-user"].split(REPEATED)[0],
        groups=tuple(groups.split(REPEATED)) if groups else (),
        uid=asked.get("impersonate-uid", "").split(REPEATED)[0],
        extra=extra,
    )


def _attributes(wanted: UserInfo) -> Iterator[AuthorizationAttributes]:
    """Yield what the requester must be allowed to impersonate."""
    account = _ACCOUNT.match(wanted.name)
    if account:
        yield AuthorizationAttributes(
            "impersonate", resource="serviceaccounts", name=account[2], namespace=account[1]
        )
    else:
        yield AuthorizationAttributes("impersonate", resource="users", name=wanted.name)
    if wanted.uid:
        yield AuthorizationAttributes(
            "impersonate", _AUTHENTICATION, resource="uids", name=wanted.uid
        )
    for group in wanted.groups:
        yield AuthorizationAttributes("impersonate", resource="groups", name=group)
    for key, values in sorted(wanted.extra.items()):
        for value in values:
            yield AuthorizationAttributes(
                "impersonate", _AUTHENTICATION, "userextras", subresource=key, name=value
            )


def _with_groups(wanted: UserInfo) -> UserInfo:
    """Add the groups that every user of this kind has."""
    groups, account = wanted.groups, _ACCOUNT.match(wanted.name)
    if account and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[1]}")
    added = _UNAUTHENTICATED if wanted.name == "system:anonymous" else _AUTHENTICATED
    if added not in groups and _UNAUTHENTICATED not in groups:
        groups = (*groups, added)
    return replace(wanted, groups=groups)
