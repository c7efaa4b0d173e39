"""
Validation rules that would take the time of all: refused when the CRD is written, or stopped.

The static costs are those that kube-apiserver 1.36.3 estimates for the same schemas; the factors
in the table are from its messages.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.embedded.apiserver.cel import compiler, cost, parser, types
from moxwell.embedded.apiserver.crd import rule_costs, rules
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import ApiClient, ApiResult
from moxwell.testing.loop import LoopClock, run_virtual

Schema = dict[str, Any]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT: Schema = {"type": "string"}
SHORT: Schema = {"type": "string", "maxLength": 10}
INTEGER: Schema = {"type": "integer"}


def many(items: Schema, most: int | None = None) -> Schema:
    made = {"type": "array", "items": items}
    return made if most is None else {**made, "maxItems": most}


def table(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def ruled(rule: str, **properties: Schema) -> Schema:
    rules_ = [{"rule": rule}]
    return {"type": "object", "properties": properties, "x-kubernetes-validations": rules_}


def nested(depth: int) -> str:
    names = "abcdefg"[:depth]
    opened = "".join(f"self.a.all({name}, " for name in names)
    return opened + "a + b + c + d + e > 0" + ")" * depth


@pytest.mark.parametrize(
    ("schema", "factor"),
    [
        (ruled("self.a.size() < 5", a=TEXT), ""),
        (ruled("self.a.matches('^[a-z]+$')", a=TEXT), ""),
        (ruled("self.a.all(x, x.size() < 5)", a=many(TEXT)), ""),
        (ruled("self.a.all(x, x == 'abc')", a=many(TEXT)), ""),
        (ruled("self.a.all(x, x.matches('^[a-z]+$'))", a=many(TEXT)), "more than 100x"),
        (ruled("self.a.all(x, self.a.all(y, x == y))", a=many(TEXT)), "more than 100x"),
        (ruled("self.a.all(x, self.a.all(y, x == y))", a=many(SHORT, 1000)), ""),
        (ruled("self.a.all(x, self.a.all(y, x == y))", a=many(SHORT, 2000)), "3.6x"),
        (ruled("self.a.exists_one(x, x == 1)", a=many(INTEGER)), ""),
        (ruled("self.a.map(x, x + 1).size() < 5", a=many(INTEGER)), "2.2x"),
        (ruled("self.a.filter(x, x > 1).size() < 5", a=many(INTEGER)), "2.4x"),
        (ruled("self.m.all(k, k.contains('x'))", m=table(TEXT)), ""),
        (ruled("self.a.all(x, x in self.m)", m=table(TEXT), a=many(TEXT)), ""),
        (ruled("self.a.all(x, x in self.b)", a=many(TEXT), b=many(TEXT)), "more than 100x"),
        (ruled("self.a.contains(self.b)", a=TEXT, b=TEXT), "more than 100x"),
        (ruled("self.a == self.b", a=many(TEXT), b=many(TEXT)), ""),
        (ruled("sets.contains(self.a, self.b)", a=many(TEXT), b=many(TEXT)), "more than 100x"),
        (ruled("self.a.split('.').all(x, x.size() < 5)", a=TEXT), "2.0x"),
        (ruled(nested(5), a=many(INTEGER, 10)), ""),
        (ruled(nested(7), a=many(INTEGER, 10)), "13.7x"),
        ({"type": "object", "properties": {"a": many(ruled("self.b == 'x'", b=TEXT))}}, ""),
        (
            {"type": "object", "properties": {"a": many(ruled("self.b.matches('a')", b=TEXT))}},
            "more than 100x",
        ),
    ],
)
def test_the_estimated_cost_is_that_of_kube_apiserver(schema: Schema, factor: str) -> None:
    found = [cause.message for cause in rule_costs.causes(schema, "")]
    first = found[0] if found else ""
    assert ("exceeds budget by factor of " in first) == bool(factor)
    assert factor in first


def test_many_cheap_rules_exceed_the_budget_of_a_schema() -> None:
    rule = many(ruled("self.b == 'x'", b=TEXT))
    schema = {"type": "object", "properties": {f"f{number}": rule for number in range(40)}}
    [*contributors, last] = [cause.message for cause in rule_costs.causes(schema, "x")]
    assert all("contributed to estimated rule cost" in text for text in contributors)
    assert "for entire OpenAPIv3 schema exceeds budget by factor of 1.3x" in last


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(" * 5000 + "1" + ")" * 5000, "recursion limit exceeded"),
        ("[" * 5000, "recursion limit exceeded"),
        ("+".join(["1"] * 5000) + " > 0", "max recursion depth exceeded"),
        ("1" + ".a" * 5000, "max recursion depth exceeded"),
        ("'" + "x" * 100_001 + "'", "code point size exceeds limit"),
        ("9" * 5000 + " > 0", "invalid int literal"),
        (r"'\U00110000' == ''", "invalid unicode code point"),
    ],
)
def test_hostile_expressions_do_not_compile(text: str, problem: str) -> None:
    with pytest.raises(parser.CelSyntaxError, match=problem):
        parser.parse(text)


def test_long_chains_of_conditions_compile() -> None:
    for word in ("&&", "||"):
        run, _ = compiler.program(f" {word} ".join(["self > 0"] * 2000), {"self": types.INT})
        assert run({"self": 1, cost.BUDGET: cost.CostBudget(0)}) is True
    assert parser.parse("!" * 501 + "self") == parser.parse("!self")


# evaluation


def crd(schema: Schema) -> Schema:
    root = {"type": "object", "properties": {"spec": schema}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version],
        },
    }


def create(schema: Schema, spec: Mapping[str, Any]) -> tuple[int, list[str]]:
    async def main() -> tuple[int, list[str]]:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            client = ApiClient(server)
            made = await client.post(CRDS, crd(schema))
            assert made.status == 201, made.object
            body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
            path = "/apis/example.com/v1/namespaces/default/things"
            return _result(await client.post(path, {**body, "spec": spec}))

    found: tuple[int, list[str]] = run_virtual(main())
    return found


def _result(answer: ApiResult) -> tuple[int, list[str]]:
    causes = (answer.object.get("details") or {}).get("causes", [])
    return answer.status, [cause["message"] for cause in causes]


def test_a_costly_evaluation_is_stopped() -> None:
    rule = "self.a.all(x, self.a.all(y, x != '' || y != ''))"
    code, causes = create(ruled(rule, a=many(SHORT, 1000)), {"a": ["x"] * 1000})
    assert (code, causes) == (
        422,
        [
            "Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no"
            " further validation rules will be run due to call cost exceeds limit for rule: " + rule
        ],
    )


def test_the_rules_of_one_object_share_a_budget() -> None:
    inner = ruled("self.b.all(x, self.b.all(y, x + y > 0))", b=many(INTEGER, 200))
    schema = {"type": "object", "properties": {"a": many(inner, 20)}}
    code, causes = create(schema, {"a": [{"b": [1] * 200} for _ in range(20)]})
    assert code == 422
    assert "validation failed due to running out of cost budget" in causes[-1]


def test_replacements_cannot_grow_without_bound() -> None:
    rule = "self.a.replace('a', self.b).size() > 0"
    sized = {"type": "string", "maxLength": 300_000}
    code, causes = create(ruled(rule, a=sized, b=sized), {"a": "a" * 200_000, "b": "b" * 200_000})
    assert (code, "cost limit exceeded" in causes[0]) == (422, True)


_NAMES = st.sampled_from(
    ["self", "self.a", "self.b", "x", "1", "0", "'a'", "-1", "1.5", "null", "[]", "{}", "[1, 'a']"]
)
_CALLS = ["size", "split", "replace", "sum", "min", "isSorted", "distinct", "join", "indexOf"]


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", "in", "&&", "||"])
    return st.one_of(
        st.tuples(inner, operators, inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.sampled_from(_CALLS), inner).map(lambda t: f"{t[0]}.{t[1]}({t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"{t[0]}[{t[1]}]"),
        st.tuples(inner, st.sampled_from(cost.MACROS), inner).map(
            lambda t: f"{t[0]}.{t[1]}(x, {t[2]})"
        ),
        st.tuples(
            inner, st.sampled_from(["int", "string", "timestamp", "duration", "quantity"])
        ).map(lambda t: f"{t[1]}({t[0]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
    )


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@settings(max_examples=200, deadline=None)
@given(text=st.recursive(_NAMES, _combined, max_leaves=8), a=_VALUES, b=_VALUES)
def test_any_expression_is_refused_or_evaluated_or_fails_as_a_rule(
    text: str, a: Any, b: Any
) -> None:
    """Nothing but the result, an error of the rule, or the end of the budget."""
    schema = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-validations": [{"rule": f"dyn({text}) == true"}],
    }
    json.dumps([cause.as_dict() for cause in rule_costs.causes(schema, "")])
    try:
        check = rules.compile_rules(schema)
    except rules.InvalidRule:
        return  # the CRD is refused
    assert check is not None
    found: list[Any] = []
    budget = cost.CostBudget(10_000)
    try:
        check({"a": a, "b": b}, "spec", found, None, False, budget)
    except cost.CostExceeded:
        assert found
    assert budget.remaining >= 0
    json.dumps([cause.as_dict() for cause in found])
