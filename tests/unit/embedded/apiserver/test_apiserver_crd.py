"""Custom resources: pruning, defaults, validation, CEL rules, columns, versions, hooks."""

from collections.abc import Callable
from typing import Any

import pytest

from moxwell.embedded.apiserver.crd.composition import MISSING
from moxwell.embedded.apiserver.crd.pruning import defaulter, pruner
from moxwell.embedded.apiserver.crd.validation import ValidationErrors, validator
from moxwell.embedded.apiserver.hooks import AdmissionAttributes, Hooks
from moxwell.errors import Invalid
from moxwell.testing.api_calls import CRDS, WIDGETS, ApiClient, make_crd, widget

Play = Callable[..., Any]
STRING, INT = {"type": "string"}, {"type": "integer"}


def spec(**fields: Any) -> dict[str, Any]:
    inner = {"type": "object", "properties": fields}
    return {"type": "object", "properties": {"spec": inner}}


def found(schema: Any, value: Any, old: Any = MISSING) -> list[str]:
    causes = ValidationErrors()
    validator(schema)(value, "v", causes, old)
    causes.ask_rules()
    return [f"{c.field}: {c.message}" for c in causes]


@pytest.mark.parametrize(
    "schema, value, wrong",
    [
        pytest.param(INT, 1, "", id="a number"),
        pytest.param(INT, 2.0, "", id="a whole fraction is a number"),
        pytest.param(INT, "1", "must be of type integer", id="text for a number"),
        pytest.param(INT, True, "must be of type integer", id="a boolean is no number"),
        pytest.param({**INT, "minimum": 1}, 0, "greater than or equal to 1", id="too small"),
        pytest.param(
            {**INT, "maximum": 1, "exclusiveMaximum": True}, 1, "less than 1", id="at the edge"
        ),
        pytest.param({**INT, "format": "int32"}, 2**40, "format int32", id="too large"),
        pytest.param({**STRING, "enum": ["a"]}, "b", "Unsupported value", id="not one of them"),
        pytest.param(
            {**STRING, "pattern": "^a+$"}, "a\n", "should match", id="a line end is no end"
        ),
        pytest.param({**STRING, "maxLength": 1}, "ab", "Too long", id="too long"),
        pytest.param(
            {**STRING, "format": "date-time"}, "x", "must be of type date-time", id="no date"
        ),
        pytest.param({**STRING, "nullable": True}, None, "", id="null where it may be"),
        pytest.param(STRING, None, "must be of type string", id="null where it may not be"),
        pytest.param({"x-kubernetes-int-or-string": True}, "5%", "", id="either"),
        pytest.param(
            {"type": "array", "items": INT, "x-kubernetes-list-type": "set"},
            [1, 1],
            "Duplicate",
            id="twice in a set",
        ),
        pytest.param(
            {"type": "object", "required": ["a"]}, {}, "v.a: Required value", id="missing"
        ),
        pytest.param(
            {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"},
            {"a": 1, "b": 1},
            "2 valid",
            id="both of one",
        ),
    ],
)
def test_validation(schema: Any, value: Any, wrong: str) -> None:
    causes = found(schema, value)
    assert (not causes) if not wrong else any(wrong in cause for cause in causes), causes


def test_unchanged_values_are_not_validated_again() -> None:
    schema = {"type": "object", "properties": {"a": {**INT, "minimum": 5}, "b": STRING}}
    assert found(schema, {"a": 1, "b": "x"}, {"a": 1}) == []
    assert found(schema, {"a": 2}, {"a": 1}) != []


def test_pruning_reports_what_it_drops() -> None:
    value = {"spec": {"a": "x", "odd": 1, "list": [{"odd": 2}]}, "metadata": {"name": "m"}}
    items = {"type": "array", "items": {"type": "object", "properties": {"n": INT}}}
    prune, unknown = pruner(spec(a=STRING, list=items), root=True), []  # type: ignore[var-annotated]
    assert prune is not None
    prune(value, "", unknown)
    assert value == {"spec": {"a": "x", "list": [{}]}, "metadata": {"name": "m"}}
    assert sorted(unknown) == ["spec.list[0].odd", "spec.odd"]


def test_defaults_replace_missing_and_null_values() -> None:
    schema = spec(a={**INT, "default": 3}, b={**INT, "default": 4, "nullable": True})
    fill = defaulter(schema)
    value: dict[str, Any] = {"spec": {"a": None, "b": None}}
    assert fill is not None
    fill(value)
    assert value == {"spec": {"a": 3, "b": None}}


@pytest.mark.parametrize(
    "rule, good, bad",
    [
        pytest.param("self.a <= self.b", {"a": 1, "b": 2}, {"a": 3, "b": 2}, id="compares"),
        pytest.param("has(self.s) || self.a > 1", {"s": "x"}, {"a": 1}, id="absorbs errors"),
        pytest.param("self.l.all(x, x.startsWith('a'))", {"l": ["a"]}, {"l": ["b"]}, id="for all"),
        pytest.param("self.?s.orValue('d') == 'd'", {}, {"s": "x"}, id="optional"),
        pytest.param("self.a % 2 == 1 && -self.a < 0", {"a": 3}, {"a": 2}, id="arithmetic"),
        pytest.param("self.s.matches('^[a-z]+$')", {"s": "ab"}, {"s": "A"}, id="matches"),
        pytest.param(
            "isIP(self.s) && ip(self.s).family() == 4",
            {"s": "10.0.0.1"},
            {"s": "::1"},
            id="addresses",
        ),
        pytest.param(
            "quantity(self.s).isGreaterThan(quantity('1Gi'))",
            {"s": "2Gi"},
            {"s": "1Mi"},
            id="quantities",
        ),
        pytest.param(
            "self.l.map(x, size(x)).sum() == 3", {"l": ["a", "bb"]}, {"l": ["a"]}, id="sums"
        ),
    ],
)
def test_rules(rule: str, good: Any, bad: Any) -> None:
    fields = {"a": INT, "b": INT, "s": STRING, "l": {"type": "array", "items": STRING}}
    schema = {
        "type": "object",
        "properties": fields,
        "x-kubernetes-validations": [{"rule": rule, "message": "no"}],
    }
    assert found(schema, good) == []
    assert found(schema, bad) != []


def test_a_transition_rule_sees_the_old_value() -> None:
    schema = {**INT, "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}
    assert found(schema, 1) == []
    assert found(schema, 2, 1) == []
    assert found(schema, 1, 2) == ["v: Invalid value: 1: failed rule: self >= oldSelf"]


@pytest.mark.parametrize(
    "rule, message",
    [
        pytest.param("self.nope > 1", "undefined field 'nope'", id="a field nobody declared"),
        pytest.param("self.a + 1", "must evaluate to a bool", id="not a boolean"),
        pytest.param("frobnicate(self.a)", "undeclared reference", id="a function nobody knows"),
        pytest.param("self.a >", "Syntax error", id="half a rule"),
    ],
)
def test_an_invalid_rule_rejects_the_crd(play: Play, rule: str, message: str) -> None:
    async def story(api: ApiClient) -> None:
        schema = spec(a=INT)
        schema["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": rule}]
        error_response = await api.post(CRDS, make_crd(schema))
        assert error_response.status == 422
        assert message in error_response.object["message"]

    play(story)


def test_versions_are_converted_by_the_hook(play: Play) -> None:
    def convert(obj: dict[str, Any], version: str) -> dict[str, Any]:
        old, new = ("size", "count") if version.endswith("/v2") else ("count", "size")
        inner = {new if k == old else k: v for k, v in obj.get("spec", {}).items()}
        return {**obj, "apiVersion": version, "spec": inner}

    async def story(api: ApiClient) -> None:
        await api.post(CRDS, make_crd(versions=("v1", "v2")))
        await api.post(WIDGETS, widget("w", {"size": 3}))
        path = f"{WIDGETS}/w".replace("/v1/", "/v2/")
        assert (await api.get(path)).object["spec"] == {"count": 3}
        await api.patch(path, {"spec": {"count": 4}})
        assert (await api.get(f"{WIDGETS}/w")).object["spec"] == {"size": 4}
        listed = (await api.get(WIDGETS.replace("/v1/", "/v2/"))).object["items"]
        assert listed[0]["apiVersion"] == "example.com/v2"

    play(story, Hooks(converters={"widgets.example.com": convert}))


def test_a_conversion_webhook_is_rejected(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        crd = make_crd(versions=("v1", "v2"))
        config = {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": config}
        error_response = await api.post(CRDS, crd)
        assert error_response.status == 422
        assert "calls no conversion webhooks" in error_response.object["message"]

    play(story)


def test_admission_and_mutation_run_in_process(play: Play) -> None:
    def admit(review: AdmissionAttributes) -> list[str]:
        if review.kind == "Widget" and review.object and review.object["spec"].get("bad"):
            raise Invalid("too bad")
        return ["be careful"] if review.kind == "Widget" else []

    def mutate(review: AdmissionAttributes) -> dict[str, Any]:
        obj = review.object or {}
        if review.kind == "Widget" and review.operation == "CREATE":
            obj["spec"]["added"] = True
        return obj

    async def story(api: ApiClient) -> None:
        await api.post(CRDS, make_crd())
        made = await api.post(WIDGETS, widget("w", {}))
        assert made.object["spec"] == {"added": True}
        assert made.headers["warning"] == '299 - "be careful"'
        error_response = await api.post(WIDGETS, widget("x", {"bad": True}))
        assert error_response.status == 403
        assert "too bad" in error_response.object["message"]

    play(story, Hooks(admit=admit, mutate=mutate))


def test_a_changed_schema_applies_to_stored_objects(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        await api.post(CRDS, make_crd(spec(a=INT)))
        await api.post(WIDGETS, widget("w", {"a": 1}))
        new = make_crd(spec(a=INT, b={**INT, "default": 7}))
        await api.patch(f"{CRDS}/widgets.example.com", {"spec": new["spec"]})
        assert (await api.get(f"{WIDGETS}/w")).object["spec"] == {"a": 1, "b": 7}

    play(story)


def test_columns_of_a_custom_kind(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.a"}]
        await api.post(CRDS, make_crd(spec(a=INT), additionalPrinterColumns=columns))
        await api.post(WIDGETS, widget("w", {"a": 3}))
        accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
        table = (await api.get(WIDGETS, accept=accept)).object
        assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size"]
        assert table["rows"][0]["cells"] == ["w", 3]

    play(story)
