"""
Accepted differences between the embedded API server and kube-apiserver, each with its reason.

An entry matches cases and paths by shell patterns. Only wording and quirks that no client depends
on belong here.
"""

from apisuite.differ import Allowed

ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        "unsupported: *",
        "/*/status",
        "refused on purpose and clearly: impersonation, webhooks and servers of others, logs, exec",
    ),
    Allowed(
        "objects: get with an Accept nobody writes",
        "/0/body/message",
        "the embedded API writes JSON alone, so it offers JSON alone",
    ),
    Allowed(
        "patches: merge: of the uid",
        "/1/body/details/causes",
        "a genuine apiserver validates metadata twice and says the same sentence twice",
    ),
    Allowed(
        "patches: merge: a bad label is refused",
        "/1/body/details/causes",
        "a genuine apiserver validates metadata twice and says the same sentence twice",
    ),
    Allowed(
        "crds: create with another version in the body",
        "/1/warnings",
        "a genuine apiserver warns of unknown fields although it goes on to refuse the version",
    ),
)
