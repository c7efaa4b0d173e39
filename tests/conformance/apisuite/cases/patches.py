"""JSON patch and merge patch."""

from apisuite.case import APPLY, JSON, JSON_PATCH, MERGE, case, get, patch, post, status_only
from apisuite.cases.bodies import CM, cm

A = status_only(post(CM, cm("a", {"k": "v", "l": "w"}, labels={"x": "1"})))
P = f"{CM}/a"


CASES = (
    case("merge: change a field", A, patch(MERGE, P, {"data": {"k": "new"}})),
    case("merge: null removes", A, patch(MERGE, P, {"data": {"k": None}})),
    case(
        "merge: the last entry leaves an empty map",
        A,
        patch(MERGE, P, {"data": {"k": None, "l": None}}),
    ),
    case("merge: null removes the whole", A, patch(MERGE, P, {"data": None})),
    case("merge: an empty patch writes nothing", A, get(P), patch(MERGE, P, {})),
    case("merge: not an object", A, patch(MERGE, P, "[1]")),
    case("merge: not JSON", A, patch(MERGE, P, "{")),
    case("merge: of the name", A, patch(MERGE, P, {"metadata": {"name": "b"}})),
    case("merge: of the namespace", A, patch(MERGE, P, {"metadata": {"namespace": "b"}})),
    case("merge: of the uid", A, patch(MERGE, P, {"metadata": {"uid": "x"}})),
    case("merge: of the kind", A, patch(MERGE, P, {"kind": "Secret"}, only=("reason", "code"))),
    case(
        "merge: with a stale resource version",
        post(CM, cm("a", {"k": "1"}), save={"rv": "metadata.resourceVersion"}),
        status_only(patch(MERGE, P, {"data": {"k": "2"}})),
        patch(MERGE, P, {"metadata": {"resourceVersion": "$rv"}, "data": {"k": "3"}}),
    ),
    case("merge: of a field nobody knows", A, patch(MERGE, P, {"nope": 1})),
    case("merge: of what is not there", patch(MERGE, f"{CM}/none", {"data": {"k": "v"}})),
    case(
        "merge: labels and annotations",
        A,
        patch(MERGE, P, {"metadata": {"labels": {"x": None, "y": "2"}, "annotations": {"n": "1"}}}),
    ),
    case(
        "merge: a bad label is refused", A, patch(MERGE, P, {"metadata": {"labels": {"a b": "1"}}})
    ),
    case(
        "merge: by a manager of its own",
        A,
        patch(MERGE, f"{P}?fieldManager=m", {"data": {"n": "1"}}),
    ),
    case(
        "json: replace",
        A,
        patch(JSON_PATCH, P, [{"op": "replace", "path": "/data/k", "value": "n"}]),
    ),
    case("json: add", A, patch(JSON_PATCH, P, [{"op": "add", "path": "/data/z", "value": "n"}])),
    case("json: remove", A, patch(JSON_PATCH, P, [{"op": "remove", "path": "/data/k"}])),
    case(
        "json: remove what is not there",
        A,
        patch(JSON_PATCH, P, [{"op": "remove", "path": "/data/zz"}]),
    ),
    case(
        "json: replace what is not there",
        A,
        patch(JSON_PATCH, P, [{"op": "replace", "path": "/data/zz", "value": "1"}]),
    ),
    case(
        "json: move and copy",
        A,
        patch(
            JSON_PATCH,
            P,
            [
                {"op": "move", "from": "/data/k", "path": "/data/m"},
                {"op": "copy", "from": "/data/m", "path": "/data/c"},
            ],
        ),
    ),
    case(
        "json: test that holds",
        A,
        patch(
            JSON_PATCH,
            P,
            [
                {"op": "test", "path": "/data/k", "value": "v"},
                {"op": "replace", "path": "/data/k", "value": "2"},
            ],
        ),
    ),
    case(
        "json: test that fails",
        A,
        patch(
            JSON_PATCH,
            P,
            [
                {"op": "test", "path": "/data/k", "value": "nope"},
                {"op": "replace", "path": "/data/k", "value": "2"},
            ],
        ),
    ),
    case(
        "json: test of what is not there",
        A,
        patch(JSON_PATCH, P, [{"op": "test", "path": "/metadata/nope", "value": "x"}]),
    ),
    case(
        "json: escaped path",
        A,
        patch(
            JSON_PATCH,
            P,
            [
                {"op": "add", "path": "/metadata/annotations", "value": {}},
                {"op": "add", "path": "/metadata/annotations/a.b~1c", "value": "1"},
            ],
        ),
    ),
    case(
        "json: add into what is not there",
        A,
        patch(JSON_PATCH, P, [{"op": "add", "path": "/metadata/annotations/x", "value": "1"}]),
    ),
    case(
        "json: finalizers by index",
        A,
        patch(JSON_PATCH, P, [{"op": "add", "path": "/metadata/finalizers", "value": ["a.b/c"]}]),
        patch(JSON_PATCH, P, [{"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/d"}]),
        patch(JSON_PATCH, P, [{"op": "remove", "path": "/metadata/finalizers/0"}]),
        patch(JSON_PATCH, P, [{"op": "remove", "path": "/metadata/finalizers/0"}]),
    ),
    case("json: unknown operation", A, patch(JSON_PATCH, P, [{"op": "odd", "path": "/data/k"}])),
    case("json: not a list", A, patch(JSON_PATCH, P, {"op": "add"})),
    case(
        "json: path without a slash",
        A,
        patch(JSON_PATCH, P, [{"op": "add", "path": "data", "value": {}}]),
    ),
    case("a patch of plain JSON is refused", A, patch(JSON, P, {"data": {}})),
    case("a patch without a type is refused", A, patch("", P, {"data": {}})),
    case("apply without a manager is refused", A, patch(APPLY, P, cm("a", {"k": "1"}))),
    case(
        "force without apply is refused", A, patch(MERGE, f"{P}?force=true", {"data": {"k": "1"}})
    ),
)
