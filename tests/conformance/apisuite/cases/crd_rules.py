"""CEL validation rules."""

from typing import Any

from apisuite.case import MERGE, Case, case, patch, post, status_only
from apisuite.cases.bodies import CRDS, WIDGETS, Body, crd, widget
from apisuite.cases.crds import made

P = f"{WIDGETS}/w"
FIELDS: Body = {
    "a": {"type": "integer"},
    "b": {"type": "integer"},
    "s": {"type": "string", "maxLength": 64},
    "list": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}},
    "items": {
        "type": "array",
        "maxItems": 10,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["id"],
        "items": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "string", "maxLength": 10}, "n": {"type": "integer"}},
        },
    },
    "map": {
        "type": "object",
        "maxProperties": 10,
        "additionalProperties": {"type": "string", "maxLength": 20},
    },
    "q": {"x-kubernetes-int-or-string": True},
    "t": {"type": "string", "format": "date-time"},
    "d": {"type": "string", "format": "duration"},
    "enum": {"type": "string", "enum": ["x", "y"]},
}


def ruled(*rules: Body, at: str = "spec", fields: Body | None = None) -> Body:
    spec: Body = {"type": "object", "properties": fields or FIELDS}
    top: Body = {"type": "object", "properties": {"spec": spec}}
    (spec if at == "spec" else top)["x-kubernetes-validations"] = list(rules)
    return crd(schema={"openAPIV3Schema": top}, subresources=None)


def rule(text: str, message: str | None = "no", **more: Any) -> Body:
    return {"rule": text, **({"message": message} if message else {}), **more}


PAIRS: list[tuple[str, str, Body, Body]] = [
    ("compare fields", "self.a <= self.b", {"a": 1, "b": 2}, {"a": 3, "b": 2}),
    ("has", "has(self.a) || has(self.b)", {"a": 1}, {"s": "x"}),
    ("exactly one", "has(self.a) != has(self.b)", {"a": 1}, {"a": 1, "b": 1}),
    (
        "string functions",
        "self.s.startsWith('a') && self.s.endsWith('z') && self.s.contains('-')",
        {"s": "a-z"},
        {"s": "a-y"},
    ),
    ("regular expression", "self.s.matches('^v[0-9]+$')", {"s": "v1"}, {"s": "x1"}),
    (
        "size",
        "size(self.s) > 2 && self.list.size() == 1",
        {"s": "abc", "list": ["a"]},
        {"s": "abc", "list": []},
    ),
    ("all", "self.list.all(x, x.startsWith('a'))", {"list": ["a", "ab"]}, {"list": ["a", "b"]}),
    ("exists", "self.list.exists(x, x == 'a')", {"list": ["b", "a"]}, {"list": ["b"]}),
    ("exists one", "self.list.exists_one(x, x == 'a')", {"list": ["b", "a"]}, {"list": ["a", "a"]}),
    (
        "filter and map",
        "self.items.filter(i, i.n > 1).map(i, i.id) == ['y']",
        {"items": [{"id": "x", "n": 1}, {"id": "y", "n": 2}]},
        {"items": [{"id": "x", "n": 5}]},
    ),
    ("in a list", "self.s in ['a', 'b']", {"s": "a"}, {"s": "c"}),
    ("in a map", "'k' in self.map", {"map": {"k": "v"}}, {"map": {"l": "v"}}),
    ("map values", "self.map.all(k, self.map[k] == 'v')", {"map": {"k": "v"}}, {"map": {"k": "w"}}),
    ("conditional", "(self.a > 0 ? self.b : self.a) == 5", {"a": 1, "b": 5}, {"a": 0, "b": 5}),
    (
        "arithmetic",
        "self.a * 2 + 1 == self.b && self.a % 2 == 1",
        {"a": 1, "b": 3},
        {"a": 2, "b": 5},
    ),
    ("negation", "!(self.s == 'x')", {"s": "y"}, {"s": "x"}),
    ("enum", "self.enum == 'x'", {"enum": "x"}, {"enum": "y"}),
    ("int or string", "type(self.q) == int ? self.q > 0 : self.q == 'max'", {"q": 4}, {"q": "min"}),
    (
        "quantity",
        "isQuantity(self.s) && quantity(self.s).isGreaterThan(quantity('1Gi'))",
        {"s": "2Gi"},
        {"s": "1Mi"},
    ),
    (
        "timestamps",
        "self.t > timestamp('2020-01-01T00:00:00Z')",
        {"t": "2021-01-01T00:00:00Z"},
        {"t": "2019-01-01T00:00:00Z"},
    ),
    ("durations", "self.d < duration('1h')", {"d": "30m"}, {"d": "2h"}),
    (
        "URL",
        "isURL(self.s) && url(self.s).getScheme() == 'https'",
        {"s": "https://a.example/x"},
        {"s": "http://a.example/x"},
    ),
    ("address", "isIP(self.s) && ip(self.s).family() == 4", {"s": "10.0.0.1"}, {"s": "fd00::1"}),
    (
        "network",
        "isCIDR(self.s) && cidr(self.s).containsIP('10.0.0.7')",
        {"s": "10.0.0.0/24"},
        {"s": "10.1.0.0/24"},
    ),
    (
        "sum, min and max",
        "self.items.map(i, i.n).sum() == 3 && self.items.map(i, i.n).max() == 2",
        {"items": [{"id": "x", "n": 1}, {"id": "y", "n": 2}]},
        {"items": [{"id": "x", "n": 3}]},
    ),
    (
        "split and replace",
        "self.s.split(',') == ['a', 'b'] && self.s.replace(',', '') == 'ab'",
        {"s": "a,b"},
        {"s": "ab"},
    ),
    (
        "find, lower and trim",
        "self.s.trim().lowerAscii().find('[0-9]+') == '7'",
        {"s": " A7 "},
        {"s": "A8"},
    ),
    ("sorted", "self.list.isSorted()", {"list": ["a", "b"]}, {"list": ["b", "a"]}),
    ("optional", "self.?a.orValue(7) == 7", {"b": 1}, {"a": 1}),
    (
        "a variable of two",
        "self.items.all(i, !has(i.n) || i.n < self.a)",
        {"a": 5, "items": [{"id": "x", "n": 1}]},
        {"a": 1, "items": [{"id": "x", "n": 1}]},
    ),
]


def _field(place: int) -> str:
    return f"rule{place:02}"


def _together() -> Body:
    """A CRD with one field and rule per pair."""
    fields: Body = {
        _field(i): {
            "type": "object",
            "properties": FIELDS,
            "x-kubernetes-validations": [rule(text)],
        }
        for i, (_, text, _, _) in enumerate(PAIRS)
    }
    return ruled(fields=fields)


def _pair(place: int, name: str, good: Body, bad: Body) -> Case:
    field = _field(place)
    return case(
        name,
        *made(_together()),
        post(WIDGETS, widget("good", {field: good}), only=("spec", "message")),
        post(WIDGETS, widget("bad", {field: bad}), only=("message", "reason", "details")),
    )


ONCE = {"a": {"type": "integer", "x-kubernetes-validations": [rule("self == oldSelf", "is fixed")]}}

CASES = (
    *(_pair(i, name, good, bad) for i, (name, _, good, bad) in enumerate(PAIRS)),
    case(
        "a message from an expression",
        *made(
            ruled(
                rule(
                    "self.a < 5",
                    None,
                    messageExpression="self.a > 6 ? 'a is large' : 'a is five or six'",
                )
            )
        ),
        post(WIDGETS, widget("w", {"a": 7})),
    ),
    case(
        "no message at all",
        *made(ruled(rule("self.a < 5", None))),
        post(WIDGETS, widget("w", {"a": 7})),
    ),
    case(
        "a reason and a field path",
        *made(ruled(rule("self.a < 5", reason="FieldValueForbidden", fieldPath=".a"))),
        post(WIDGETS, widget("w", {"a": 7})),
    ),
    case(
        "two rules broken at once",
        *made(ruled(rule("self.a < 5", "first"), rule("self.b < 5", "second"))),
        post(WIDGETS, widget("w", {"a": 7, "b": 7})),
    ),
    case(
        "a rule about the name",
        *made(ruled(rule("self.metadata.name.startsWith('w')", "name"), at="top")),
        post(WIDGETS, widget("w"), only=("metadata.name",)),
        post(WIDGETS, widget("x")),
    ),
    case(
        "a field that is fixed",
        *made(ruled(rule("true"), fields=ONCE)),
        status_only(post(WIDGETS, widget("w", {"a": 1}))),
        patch(MERGE, P, {"spec": {"a": 2}}),
        patch(MERGE, P, {"metadata": {"labels": {"a": "b"}}}, show="status"),
    ),
    case(
        "a transition of the whole spec",
        *made(ruled(rule("self.a >= oldSelf.a", "may not shrink"))),
        status_only(post(WIDGETS, widget("w", {"a": 2}))),
        patch(MERGE, P, {"spec": {"a": 3}}, only=("spec",)),
        patch(MERGE, P, {"spec": {"a": 1}}),
    ),
    case(
        "a field once set stays set",
        *made(ruled(rule("!has(oldSelf.a) || has(self.a)", "a stays"))),
        status_only(post(WIDGETS, widget("w", {"a": 2}))),
        patch(MERGE, P, {"spec": {"a": None}}),
    ),
    case(
        "a transition inside a list by key",
        *made(
            ruled(rule("self.items.all(i, oldSelf.items.exists(o, o.id == i.id))", "no new ones"))
        ),
        status_only(post(WIDGETS, widget("w", {"items": [{"id": "x"}]}))),
        patch(MERGE, P, {"spec": {"items": [{"id": "y"}]}}),
    ),
    case(
        "a rule that fails to run",
        *made(ruled(rule("self.a / self.b > 0"))),
        post(WIDGETS, widget("w", {"a": 1, "b": 0})),
    ),
    case(
        "a rule with an absent field",
        *made(ruled(rule("self.a > 0"))),
        post(WIDGETS, widget("w", {"b": 1})),
    ),
    case(
        "a rule that does not compile",
        post(CRDS, ruled(rule("self.nope > 1")), drop=("message", "details.causes.*.message")),
    ),
    case(
        "a rule that is not a boolean",
        post(CRDS, ruled(rule("self.a + 1")), drop=("message", "details.causes.*.message")),
    ),
    case(
        "a rule is not asked while the types are wrong",
        *made(ruled(rule("self.a < 5"))),
        post(WIDGETS, widget("w", {"a": "x"})),
    ),
)
