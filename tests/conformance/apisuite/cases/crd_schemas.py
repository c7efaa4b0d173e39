"""Structural schemas: pruning, defaulting, validation."""

from typing import Any

from apisuite.case import MERGE, Case, case, patch, post, status_only
from apisuite.cases.bodies import CRDS, WIDGETS, Body, crd, widget
from apisuite.cases.crds import made

P = f"{WIDGETS}/w"
SPEC = ("spec",)


def schema(**spec: Any) -> Body:
    """A CRD whose spec has the given properties."""
    shape = {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}
    return crd(schema={"openAPIV3Schema": shape}, subresources=None)


def ok(name: str, spec: Body, body: Body | None = None) -> Case:
    return case(name, *made(body), post(WIDGETS, widget("w", spec), only=(*SPEC, "message")))


def bad(name: str, spec: Any, body: Body | None = None) -> Case:
    return case(name, *made(body), post(WIDGETS, widget("w", spec)))


NESTED = schema(
    a={"type": "object", "default": {}, "properties": {"b": {"type": "string", "default": "x"}}},
    c={"type": "object", "properties": {"d": {"type": "integer", "default": 1}}},
    m={
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {"e": {"type": "string", "default": "y"}},
        },
    },
)
REQUIRED = crd(
    schema={
        "openAPIV3Schema": {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["a", "b"],
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                }
            },
        }
    }
)
CHOICE = schema(
    one={
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    any={
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    no={"type": "integer", "not": {"enum": [3]}},
)
KINDS = schema(
    n={"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
    i64={"type": "integer", "format": "int64"},
    i32={"type": "integer", "format": "int32"},
    s={"type": "string", "minLength": 2},
    b={"type": "boolean"},
    d={"type": "string", "format": "date-time"},
    ip={"type": "string", "format": "ipv4"},
    u={"type": "string", "format": "uuid"},
    u8={"type": "string", "format": "byte"},
    set={"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    min={"type": "array", "minItems": 2, "items": {"type": "integer"}},
    few={"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}},
    raw={
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
)

CASES = (
    ok("unknown fields are pruned", {"size": 2, "odd": {"a": 1}}),
    ok("unknown fields inside a list are pruned", {"parts": [{"id": "a", "odd": 1}]}),
    ok("a free object keeps all", {"free": {"a": {"b": [1, "x", None]}}}),
    ok("defaults fill in", {}),
    ok("defaults inside a list", {"parts": [{"id": "a"}]}),
    ok("defaults of nested objects", {}, NESTED),
    ok("defaults below what is given", {"c": {}, "m": {"k": {}}}, NESTED),
    ok("null where it may not be becomes the default", {"size": None}),
    ok("null where it may be stays", {"maybe": None}),
    ok("null for an object or a list is dropped", {"labels": None, "parts": None, "free": None}),
    ok("null inside a list is dropped", {"parts": [{"id": "a", "weight": None}]}),
    case("null for the whole spec", *made(), post(WIDGETS, {**widget("w"), "spec": None})),
    ok("int or string: int", {"port": 80}),
    ok("int or string: string", {"port": "http"}),
    bad("int or string: neither", {"port": True}),
    bad("below the minimum", {"size": 0}),
    bad("above the maximum", {"size": 11}),
    bad("not in the enum", {"colour": "blue"}),
    bad("not of the pattern", {"name": "ABC"}),
    *(
        case(
            f"a pattern that is none: {text}",
            post(CRDS, schema(a={"type": "string", "pattern": text})),
        )
        for text in ("(?=x)", "a{1001}", "(a", "[a", "*", "a**", "a\\Z", "a)", "(?P<n")
    ),
    bad("longer than allowed", {"name": "abcdefghi"}),
    bad("too many items", {"tags": ["a", "b", "c", "d"]}),
    bad("a string for a number", {"size": "two"}),
    bad("a number for a string", {"name": 5}),
    bad("a list for an object", {"labels": ["a"]}),
    bad("an object for a list", {"tags": {"a": 1}}),
    bad("a number in a map of strings", {"labels": {"a": 1}}),
    bad("a string for the whole spec", "text"),
    bad("a fraction for an integer", {"size": 2.5}),
    ok("a whole fraction for an integer", {"size": 2.0}),
    bad("a required item key is missing", {"parts": [{"weight": 1}]}),
    bad("a list key twice", {"parts": [{"id": "a"}, {"id": "a"}]}),
    case(
        "several errors at once",
        *made(),
        post(WIDGETS, widget("w", {"size": 0, "colour": "blue", "name": "A"}), drop=("message",)),
    ),
    bad("required fields are missing", {}, REQUIRED),
    case(
        "a required object is missing",
        *made(REQUIRED),
        post(WIDGETS, {k: v for k, v in widget("w").items() if k != "spec"}),
    ),
    bad("one of: none", {"one": {}}, CHOICE),
    bad("one of: both", {"one": {"a": "1", "b": "1"}}, CHOICE),
    ok("one of: one", {"one": {"a": "1"}}, CHOICE),
    bad("any of: none", {"any": {}}, CHOICE),
    bad("not: that", {"no": 3}, CHOICE),
    bad("exclusive minimum", {"n": 0}, KINDS),
    bad("not a multiple", {"n": 0.7}, KINDS),
    bad("too large for int32", {"i32": 3000000000}, KINDS),
    ok("large int64", {"i64": 9007199254740993}, KINDS),
    bad("too short", {"s": "a"}, KINDS),
    bad("a string for a boolean", {"b": "true"}, KINDS),
    bad("not a date", {"d": "yesterday"}, KINDS),
    ok("a date", {"d": "2020-01-01T00:00:00Z"}, KINDS),
    bad("not an address", {"ip": "1.2.3"}, KINDS),
    bad("not a uuid", {"u": "x"}, KINDS),
    bad("not base64", {"u8": "!"}, KINDS),
    bad("a set with a value twice", {"set": ["a", "b", "a"]}, KINDS),
    bad("too few items", {"min": [1]}, KINDS),
    bad("too many properties", {"few": {"a": "1", "b": "2"}}, KINDS),
    bad("an embedded resource without a kind", {"raw": {"metadata": {"name": "x"}}}, KINDS),
    ok(
        "an embedded resource",
        {
            "raw": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "x", "odd": 1},
                "spec": {"a": 1},
            }
        },
        KINDS,
    ),
    case(
        "a patch is validated too",
        *made(),
        status_only(post(WIDGETS, widget("w"))),
        patch(MERGE, P, {"spec": {"size": 99}}),
    ),
    case(
        "a default comes back when removed",
        *made(),
        status_only(post(WIDGETS, widget("w", {"size": 5}))),
        patch(MERGE, P, {"spec": {"size": None}}, only=("spec", "metadata.generation")),
    ),
    case(
        "strict validation of unknown fields",
        *made(),
        post(
            f"{WIDGETS}?fieldValidation=Strict",
            widget("w", {"odd": 1, "parts": [{"id": "a", "more": 1}]}),
        ),
    ),
    case(
        "warnings for unknown fields",
        *made(),
        post(f"{WIDGETS}?fieldValidation=Warn", widget("w", {"odd": 1}), only=SPEC),
    ),
    case(
        "strict validation of a patch",
        *made(),
        status_only(post(WIDGETS, widget("w"))),
        patch(
            MERGE,
            f"{P}?fieldValidation=Strict",
            {"spec": {"odd": 1}},
            only=("reason", "code", "details.causes[0].field"),
        ),
    ),
    case(
        "metadata is held to its own schema",
        *made(),
        post(WIDGETS, {**widget("w"), "metadata": {"name": "w", "labels": {"a": 5}}}),
    ),
    case(
        "unknown metadata is dropped",
        *made(),
        post(
            WIDGETS,
            {**widget("w"), "metadata": {"name": "w", "odd": 5}},
            drop=("metadata.managedFields",),
        ),
    ),
    case("a bad name", *made(), post(WIDGETS, widget("Bad_Name"))),
)
