"""Dry runs and field validation."""

from apisuite.case import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    case,
    delete,
    get,
    patch,
    post,
    put,
    status_only,
)
from apisuite.cases.bodies import CM, DEPLOYMENTS, cm, deployment

A = status_only(post(CM, cm("a", {"k": "v"})))
P = f"{CM}/a"
TYPO = {**cm("b", {"k": "v"}), "dta": {"x": "y"}, "metadata": {"name": "b", "lables": {"a": "b"}}}
TWICE = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{"a":"1","a":"2"}}'

CASES = (
    case("dry run of a create", post(f"{CM}?dryRun=All", cm("b", {"k": "v"})), get(f"{CM}/b")),
    case("dry run of a create that exists", A, post(f"{CM}?dryRun=All", cm("a"))),
    case("dry run of a generated name", post(f"{CM}?dryRun=All", cm(generateName="g-"))),
    case("dry run of a replace", A, put(f"{P}?dryRun=All", cm("a", {"k": "w"})), get(P)),
    case("dry run of a patch", A, patch(MERGE, f"{P}?dryRun=All", {"data": {"k": "w"}}), get(P)),
    case("dry run of a delete", A, delete(f"{P}?dryRun=All"), get(P)),
    case(
        "dry run in the body of a delete",
        A,
        delete(P, {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}),
        get(P),
    ),
    case("dry run of many deletes", A, delete(f"{CM}?dryRun=All&labelSelector=no%3Dne"), get(P)),
    case("dry run of something odd", post(f"{CM}?dryRun=Some", cm("b"))),
    case("unknown fields are dropped quietly without being asked", post(CM, TYPO)),
    case("validation: ignore", post(f"{CM}?fieldValidation=Ignore", TYPO)),
    case("validation: warn", post(f"{CM}?fieldValidation=Warn", TYPO)),
    case("validation: strict", post(f"{CM}?fieldValidation=Strict", TYPO)),
    case("validation: odd", post(f"{CM}?fieldValidation=Odd", TYPO)),
    case("validation: a key twice, warned", post(f"{CM}?fieldValidation=Warn", TWICE)),
    case("validation: a key twice, strict", post(f"{CM}?fieldValidation=Strict", TWICE)),
    case(
        "validation: strict on replace",
        A,
        put(f"{P}?fieldValidation=Strict", {**cm("a"), "dta": {}}),
    ),
    case(
        "validation: strict on a merge patch",
        A,
        patch(
            MERGE,
            f"{P}?fieldValidation=Strict",
            {"dta": {"a": "b"}},
            only=("reason", "code", "details.causes[0].field"),
        ),
    ),
    case(
        "validation: strict on a JSON patch",
        A,
        patch(
            JSON_PATCH,
            f"{P}?fieldValidation=Strict",
            [{"op": "add", "path": "/dta", "value": {}}],
            only=("reason", "code", "details.causes[0].field"),
        ),
    ),
    case(
        "validation: strict on a strategic patch",
        A,
        patch(
            STRATEGIC,
            f"{P}?fieldValidation=Strict",
            {"dta": {"a": "b"}},
            only=("reason", "code", "details.causes[0].field"),
        ),
    ),
    case(
        "validation: warn on a nested field",
        post(
            f"{DEPLOYMENTS}?fieldValidation=Warn",
            {**deployment("d", 0, paused=True, odd=1)},
            only=("spec.paused", "spec.odd"),
        ),
    ),
    case(
        "validation: several errors at once",
        post(f"{DEPLOYMENTS}?fieldValidation=Strict", {**deployment("d", 0, odd=1), "more": {}}),
    ),
    case(
        "validation: a wrong case is unknown",
        post(f"{CM}?fieldValidation=Strict", {**cm("b"), "Data": {"a": "b"}}),
    ),
)
