"""
Accepted differences between the embedded API server and kube-apiserver, each with its reason.

An entry matches cases and paths by shell patterns. Only wording and quirks that no client depends
on belong here.
"""

from apisuite.differ import Allowed

ALLOWED: tuple[Allowed, ...] = (
    Allowed(
        'limits: delete options {"pr*',
        "/1/body/message",
        "the table of Go types has no names of string types, such as types.UID",
    ),
    Allowed(
        "unsupported: *",
        "/*/status",
        "unsupported by design: webhooks, aggregated servers, logs, exec",
    ),
    Allowed(
        "objects: get with an Accept nobody writes",
        "/0/body/message",
        "the embedded API server responds in JSON only",
    ),
    Allowed(
        "patches: merge: of the uid",
        "/1/body/details/causes",
        "kube-apiserver validates metadata twice and repeats the message",
    ),
    Allowed(
        "patches: merge: a bad label is refused",
        "/1/body/details/causes",
        "kube-apiserver validates metadata twice and repeats the message",
    ),
    Allowed(
        "crds: create with another version in the body",
        "/1/warnings",
        "kube-apiserver warns of unknown fields although it rejects the version",
    ),
)
