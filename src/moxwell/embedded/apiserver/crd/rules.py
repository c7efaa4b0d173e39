"""
Compiles ``x-kubernetes-validations`` (CEL rules) to validation functions.

A transition rule (it mentions ``oldSelf``) is skipped without an old value, unless
``optionalOldSelf`` is set. A rule that fails to evaluate counts as violated, with CEL's message.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.embedded.apiserver.cel import compiler, parser, types
from moxwell.embedded.apiserver.cel.cost import BUDGET, PER_CALL, CostBudget, CostExceeded
from moxwell.embedded.apiserver.cel.values import NONE, EvaluationError, Optional, overload
from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.status_errors import ErrorCause, shortened
from moxwell.errors import Invalid

Schema = Mapping[str, Any]
Rules = Callable[[Any, str, list[ErrorCause], Any, bool, CostBudget], None]
_REASONS = {
    "": "FieldValueInvalid",
    "FieldValueInvalid": "FieldValueInvalid",
    "FieldValueForbidden": "FieldValueForbidden",
    "FieldValueRequired": "FieldValueRequired",
    "FieldValueDuplicate": "FieldValueDuplicate",
}


class InvalidRule(Invalid):
    """The rule does not compile; ``field`` names the invalid part."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.field = field


class CompiledRule:
    """A compiled rule."""

    def __init__(self, given: Mapping[str, Any], kind: types.Type, schema_type: str) -> None:
        self._text = given["rule"].strip()
        self._given, self._format_value = given, schema_type
        self.optional_old = bool(given.get("optionalOldSelf"))
        old = types.Type("optional", element=kind) if self.optional_old else kind
        variables = {"self": kind, "oldSelf": old}
        self._run = _compiled(self._text, variables, ("bool", "dyn"), "rule")
        self._message = None
        if text := given.get("messageExpression"):
            self._message = _compiled(text, variables, ("string", "dyn"), "messageExpression")
        self.transition = "oldSelf" in parser.names_in(parser.parse(self._text))

    def check(
        self,
        value: Any,
        path: str,
        found: list[ErrorCause],
        old: Any,
        has_old: bool,
        budget: CostBudget,
    ) -> None:
        """Evaluate the rule; raises ``CostExceeded`` after the error if no other rule may run."""
        if self.transition and not has_old and not self.optional_old:
            return
        call = CostBudget(min(PER_CALL, budget.remaining))
        env = {"self": value, "oldSelf": old, BUDGET: call}
        if self.optional_old:
            env["oldSelf"] = Optional(True, old) if has_old else NONE
        start = call.remaining
        try:
            if _evaluate(self._run, env) is not True:
                found.append(self._cause(self._message_for_env(env), path, _format_value(value)))
            budget.remaining -= start - call.remaining
        except CostExceeded as exceeded:
            text = self._cost_text(exceeded, whole=start == PER_CALL)
            found.append(self._cause(text, path, f'"{self._format_value}": '))
            raise
        except EvaluationError as failed:
            found.append(self._cause(self._error_text(failed), path, f'"{self._format_value}": '))

    def _cost_text(self, exceeded: CostExceeded, *, whole: bool) -> str:
        if not whole:
            return (
                "validation failed due to running out of cost budget, no further validation rules"
                " will be run"
            )
        return (
            f"'{exceeded}': no further validation rules will be run due to call cost exceeds limit"
            f" for rule: {self._text}"
        )

    def _error_text(self, failed: EvaluationError) -> str:
        if not str(failed).startswith("no such overload"):
            return f"{failed} evaluating rule: {self._given.get('message') or self._text}"
        return (
            f"'{failed}': call arguments did not match a supported operator, function or macro"
            f" signature for rule: {self._text}"
        )

    def _message_for_env(self, env: dict[str, Any]) -> str:
        if self._message is not None:
            try:
                text = _evaluate(self._message, env)
            except EvaluationError:
                text = ""
            if isinstance(text, str) and text.strip() and "\n" not in text:
                return text.strip()
        message: str = self._given.get("message") or ""
        return message.strip() or f"failed rule: {self._text}"

    def _cause(self, text: str, path: str, shown_value: str) -> ErrorCause:
        where = path + (self._given.get("fieldPath") or "")
        reason = _REASONS.get(self._given.get("reason") or "", "FieldValueInvalid")
        shown = {
            "FieldValueForbidden": f"Forbidden: {text}",
            "FieldValueRequired": f"Required value: {text}",
            "FieldValueDuplicate": f'Duplicate value: "{self._format_value}"',
        }.get(reason, f"Invalid value: {shown_value}{text}")
        where = where.removeprefix(".") if not path else where
        return ErrorCause(reason, shown, where or "<nil>")


def _evaluate(run: Callable[[dict[str, Any]], Any], env: dict[str, Any]) -> Any:
    """Evaluate; what Python cannot compute or compare is an error of the expression."""
    try:
        return run(env)
    except TypeError:
        raise overload() from None
    except (ArithmeticError, ValueError, LookupError) as error:
        raise EvaluationError(shortened(str(error))) from None


def _format_value(value: Any) -> str:
    """Format a scalar for the error; objects and lists are not shown."""
    return "" if isinstance(value, (dict, list)) else encode(value).decode() + ": "


def _compiled(
    text: str, variables: Mapping[str, types.Type], wanted: tuple[str, ...], field: str
) -> Callable[[dict[str, Any]], Any]:
    try:
        run, kind = compiler.program(text, variables)
    except parser.CelSyntaxError as problem:
        raise InvalidRule(f"compilation failed: ERROR: <input>:1:1: {problem}", field) from problem
    if kind.name not in wanted:
        what = "a bool" if field == "rule" else "a string"
        raise InvalidRule(f"cel expression must evaluate to {what}", field)
    return run


def compile_rules(schema: Schema, *, root: bool = False) -> Rules | None:
    """Compile the rules of one schema node; None if there are none."""
    given = schema.get("x-kubernetes-validations")
    if not given:
        return None
    kind = types.from_schema(schema, root=root)
    shown = schema.get("type", "object")
    rules = [CompiledRule(rule, kind, shown) for rule in given]
    convert = kind.convert

    def check(
        value: Any,
        path: str,
        found: list[ErrorCause],
        old: Any,
        has_old: bool,
        budget: CostBudget,
    ) -> None:
        if convert is not None:
            value = convert(value)
            old = convert(old) if has_old else old
        for rule in rules:
            rule.check(value, path, found, old, has_old, budget)

    return check
