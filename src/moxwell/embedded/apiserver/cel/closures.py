"""
Closures of CEL's operators and macros: selection, logic, comprehension.

Each function combines compiled operands to one function of the variables.
"""

from collections.abc import Callable
from typing import Any

from moxwell.embedded.apiserver.cel import values
from moxwell.embedded.apiserver.cel.cost import BUDGET, size
from moxwell.embedded.apiserver.cel.types import Type
from moxwell.embedded.apiserver.cel.values import NONE, EvaluationError, Optional

SIZED = (str, bytes, list, dict)
Env = dict[str, Any]
Eval = Callable[[Env], Any]


def optional(run: Eval, name: str, convert: Callable[[Any], Any] | None) -> Eval:
    def select(env: Env) -> Any:
        value = run(env)
        if isinstance(value, Optional):
            if not value.there:
                return NONE
            value = value.value
        if not isinstance(value, dict) or name not in value:
            return NONE
        return Optional(True, value[name] if convert is None else convert(value[name]))

    return select


def truth(value: Any) -> bool:
    if value.__class__ is not bool:
        raise values.overload()
    found: bool = value
    return found


def negate(run: Eval) -> Eval:
    return lambda env: not truth(run(env))


def charged(function: Callable[[Any, Any], Any], runs: list[Eval]) -> Eval:
    """Combine operands whose sizes decide the cost: texts, lists and maps."""
    left, right = runs

    def charged(env: Env) -> Any:
        a, b = left(env), right(env)
        if a.__class__ in SIZED and b.__class__ in SIZED:
            env[BUDGET].spend((size(a) + size(b)) // 10)
        return function(a, b)

    return charged


def member(runs: list[Eval]) -> Eval:
    """Combine the operands of ``in``: a list is searched, a map is not."""
    item, of = runs

    def member(env: Env) -> bool:
        what, where = item(env), of(env)
        if isinstance(where, list):
            env[BUDGET].spend(len(where) + size(where) // 10)
        return values.member(what, where)

    return member


def logic(left: Eval, right: Eval, *, decides: bool) -> Eval:
    def logic(env: Env) -> bool:
        try:
            if truth(left(env)) is decides:
                return decides
        except EvaluationError:
            if truth(right(env)) is decides:
                return decides
            raise
        return truth(right(env))

    return logic


def each(run: Eval, variable: str, element: Type) -> Callable[[Env], tuple[Env, list[Any]]]:
    convert = element.convert

    def each(env: Env) -> tuple[Env, list[Any]]:
        found = run(env)
        if not isinstance(found, (list, dict)):
            raise values.overload()
        env[BUDGET].spend(len(found))
        items = list(found)
        return {**env, variable: None}, items if convert is None else [convert(i) for i in items]

    def named(env: Env) -> tuple[Env, list[Any]]:
        inner, items = each(env)
        inner["\0"] = variable
        return inner, items

    return named


def collect(
    name: str, each: Callable[[Env], tuple[Env, list[Any]]], bodies: list[Eval], cost: int
) -> Eval:
    def collect(env: Env) -> list[Any]:
        inner, items = each(env)
        spend = env[BUDGET].spend
        variable, made = inner.pop("\0"), []
        for item in items:
            spend(cost)
            inner[variable] = item
            if name == "filter":
                if truth(bodies[0](inner)):
                    made.append(item)
            elif len(bodies) == 1:
                made.append(bodies[0](inner))
            elif truth(bodies[0](inner)):
                made.append(bodies[1](inner))
        return made

    return collect


def quantify(
    name: str, each: Callable[[Env], tuple[Env, list[Any]]], body: Eval, cost: int
) -> Eval:
    def quantify(env: Env) -> bool:
        inner, items = each(env)
        spend = env[BUDGET].spend
        variable, count = inner.pop("\0"), 0
        failed: EvaluationError | None = None
        for item in items:
            spend(cost)
            inner[variable] = item
            try:
                holds = truth(body(inner))
            except EvaluationError as error:
                failed = error
                continue
            if name == "all" and not holds:
                return False
            if name == "exists" and holds:
                return True
            count += holds
        if failed is not None:
            raise failed
        return name == "all" or (name != "exists" and count == 1)

    return quantify
