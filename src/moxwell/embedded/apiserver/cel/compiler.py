"""
Compiles a CEL syntax tree to a Python closure and checks types.

``&&`` and ``||`` absorb an error of one operand when the other decides, as CEL requires.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.embedded.apiserver.cel import closures, parser, values
from moxwell.embedded.apiserver.cel.closures import Env, Eval
from moxwell.embedded.apiserver.cel.cost import BUDGET, ITERATION_COST, MACROS, body_cost, call_cost
from moxwell.embedded.apiserver.cel.functions import FUNCTIONS, METHODS
from moxwell.embedded.apiserver.cel.parser import (
    CallNode,
    Index,
    ListOf,
    Literal,
    MapOf,
    Name,
    Node,
    Select,
)
from moxwell.embedded.apiserver.cel.types import (
    BOOL,
    DOUBLE,
    DYN,
    INT,
    LIST,
    MAP,
    STRING,
    Type,
    parse_duration,
)
from moxwell.embedded.apiserver.cel.values import NONE, EvaluationError, Optional

Typed = tuple[Eval, Type]
_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": values.add,
    "-": values.subtract,
    "*": values.multiply,
    "/": values.divide,
    "%": values.modulo,
}
_ORDER: Mapping[str, Callable[[int], bool]] = {
    "<": lambda c: c < 0,
    "<=": lambda c: c <= 0,
    ">": lambda c: c > 0,
    ">=": lambda c: c >= 0,
}
_TYPES = {
    "int": "int",
    "uint": "int",
    "double": "double",
    "string": "string",
    "bool": "bool",
    "bytes": "bytes",
    "list": "list",
    "map": "map",
    "null_type": "null_type",
}
_LITERALS: tuple[tuple[type, Type], ...] = (
    (bool, BOOL),
    (int, INT),
    (float, DOUBLE),
    (str, STRING),
    (bytes, Type("bytes")),
)


def program(text: str, variables: Mapping[str, Type]) -> Typed:
    """Compile an expression; returns the function and its result type."""
    return Compiler(dict(variables)).node(parser.parse(text))


def undeclared(name: str) -> parser.CelSyntaxError:
    return parser.CelSyntaxError(f"undeclared reference to '{name}' (in container '')")


def _spelled(name: str) -> str:
    """Return the property name of an escaped identifier."""
    if not name.startswith("__") and "__" not in name:
        return name
    if name.startswith("__") and name.endswith("__"):
        return name[2:-2]
    for code, char in (
        ("__dot__", "."),
        ("__dash__", "-"),
        ("__slash__", "/"),
        ("__underscores__", "__"),
    ):
        name = name.replace(code, char)
    return name


class Compiler:
    """Compiles nodes in one scope of variables."""

    def __init__(self, variables: dict[str, Type]) -> None:
        self._variables = variables

    def node(self, node: Node) -> Typed:
        match node:
            case Literal(value):
                kind = next((t for k, t in _LITERALS if isinstance(value, k)), DYN)
                return (lambda env: value), kind
            case Name(name):
                return self._name(name)
            case Select(of, field, optional):
                return self._select(of, field, optional)
            case Index(of, at, optional):
                return self._index(of, at, optional)
            case ListOf(items):
                made = [self.node(item) for item in items]
                element = made[0][1] if made else DYN
                runs = [run for run, _ in made]
                return (lambda env: [run(env) for run in runs]), Type("list", element=element)
            case MapOf(items):
                pairs = [(self.node(k)[0], self.node(v)[0]) for k, v in items]
                return (lambda env: {k(env): v(env) for k, v in pairs}), MAP
            case CallNode():
                return self._call(node)

    def _name(self, name: str) -> Typed:
        if name in self._variables:
            return (lambda env: env[name]), self._variables[name]
        if name in _TYPES:
            shown = _TYPES[name]
            return (lambda env: shown), Type("type")
        raise undeclared(name)

    # members

    def _select(self, of: Node, field: str, optional: bool) -> Typed:
        run, kind = self.node(of)
        inner = kind.element if kind.name == "optional" else kind
        below = self._field_type(inner or DYN, field)
        name, convert = _spelled(field), below.convert
        if optional or kind.name == "optional":
            return closures.optional(run, name, convert), Type("optional", element=below)

        def select(env: Env) -> Any:
            value = run(env)
            if value.__class__ is not dict:
                raise values.overload()
            if name not in value:
                raise EvaluationError(f"no such key: {name}")
            found = value[name]
            if convert is None:
                return found
            if found.__class__ is str:
                env[BUDGET].spend(len(found) // 10)
            return convert(found)

        return select, below

    def _field_type(self, kind: Type, field: str) -> Type:
        if kind.fields is not None:
            if field not in kind.fields:
                raise parser.CelSyntaxError(f"undefined field '{field}'")
            return kind.fields[field]
        if kind.name == "map":
            return kind.element or DYN
        if kind.name in ("dyn", "optional"):
            return DYN
        raise parser.CelSyntaxError(f"type '{kind.name}' does not support field selection")

    def _index(self, of: Node, at: Node, optional: bool) -> Typed:
        (run, kind), (key, _) = self.node(of), self.node(at)
        inner = (kind.element or DYN) if kind.name == "optional" else kind
        below = inner.element or DYN
        convert = below.convert

        def index(env: Env) -> Any:
            value, place = run(env), key(env)
            if isinstance(value, Optional):
                value = value.value if value.there else {}
            if isinstance(value, list):
                if not isinstance(place, int) or not 0 <= place < len(value):
                    raise EvaluationError(f"index out of bounds: {place}")
            elif not isinstance(value, dict):
                raise values.overload()
            elif place not in value:
                raise EvaluationError(f"no such key: {place}")
            return value[place] if convert is None else convert(value[place])

        if not optional and kind.name != "optional":
            return index, below

        def maybe(env: Env) -> Any:
            try:
                return Optional(True, index(env))
            except EvaluationError:
                return NONE

        return maybe, Type("optional", element=below)

    # calls

    def _call(self, call: CallNode) -> Typed:
        if call.of is None:
            return self._operator(call)
        qualified = _qualified(call.of, call.name)
        if qualified in FUNCTIONS and not (
            isinstance(call.of, Name) and call.of.name in self._variables
        ):
            runs = [self.node(a)[0] for a in call.args]
            return self._apply(qualified, FUNCTIONS[qualified], runs)
        if call.name in MACROS and len(call.args) >= 2 and isinstance(call.args[0], Name):
            return self._macro(call, call.args[0].name)
        if call.name in ("optMap", "optFlatMap") and isinstance(call.args[0], Name):
            return self._opt_map(call, call.args[0].name)
        if call.name not in METHODS:
            raise undeclared(call.name)
        target = self.node(call.of)
        runs = [target[0], *(self.node(a)[0] for a in call.args)]
        made = self._apply(call.name, METHODS[call.name], runs)
        if call.name in ("orValue", "value") and target[1].element is not None:
            return made[0], target[1].element
        return made

    def _apply(
        self, name: str, function: tuple[Callable[..., Any], Type], args: list[Eval]
    ) -> Typed:
        run, kind = function

        def apply(env: Env) -> Any:
            values_ = [arg(env) for arg in args]
            try:
                env[BUDGET].spend(call_cost(name, values_))
                return run(*values_)
            except (TypeError, AttributeError):
                raise values.overload() from None

        return apply, kind

    def _operator(self, call: CallNode) -> Typed:
        name = call.name
        if name == "has":
            return self._has(call)
        args = [self.node(arg) for arg in call.args]
        runs = [run for run, _ in args]
        if name in ("&&", "||"):
            return closures.logic(runs[0], runs[1], decides=name == "||"), BOOL
        if name in _ARITHMETIC:
            kind = args[0][1] if args[0][1] != DYN else args[1][1]
            return closures.charged(_ARITHMETIC[name], runs), kind
        if name in _ORDER:
            test = _ORDER[name]
            return closures.charged(lambda a, b: test(values.compare(a, b)), runs), BOOL
        simple: dict[str, Typed] = {}
        if name in ("==", "!="):
            same = name == "=="
            simple[name] = (closures.charged(lambda a, b: values.equal(a, b) is same, runs), BOOL)
        if name == "in":
            simple[name] = (closures.member(runs), BOOL)
        if name == "!":
            simple[name] = (closures.negate(runs[0]), BOOL)
        if name == "neg":
            simple[name] = ((lambda env: values.negate(runs[0](env))), args[0][1])
        if name == "?:":
            kind = args[1][1] if args[1][1].name == args[2][1].name else DYN
            simple[name] = (
                (lambda env: runs[1](env) if closures.truth(runs[0](env)) else runs[2](env)),
                kind,
            )
        if name in simple:
            return simple[name]
        if name not in FUNCTIONS:
            raise undeclared(name)
        return self._apply(name, FUNCTIONS[name], runs)

    def _has(self, call: CallNode) -> Typed:
        what = call.args[0] if len(call.args) == 1 else None
        if not isinstance(what, Select):
            raise parser.CelSyntaxError("invalid argument to has() macro")
        run, kind = self.node(what.of)
        self._field_type((kind.element or DYN) if kind.name == "optional" else kind, what.field)
        name = _spelled(what.field)

        def has(env: Env) -> bool:
            value = run(env)
            if value.__class__ is not dict:
                raise values.overload()
            return name in value

        return has, BOOL

    def _macro(self, call: CallNode, variable: str) -> Typed:
        assert call.of is not None
        run, kind = self.node(call.of)
        element = STRING if kind.name == "map" else (kind.element or DYN)
        inside = Compiler({**self._variables, variable: element})
        bodies = [inside.node(arg) for arg in call.args[1:]]
        each = closures.each(run, variable, element)
        cost = ITERATION_COST + sum(body_cost(arg) for arg in call.args[1:])
        if call.name in ("map", "filter"):
            return closures.collect(call.name, each, [b for b, _ in bodies], cost), (
                Type("list", element=bodies[-1][1])
                if call.name == "map"
                else Type("list", element=element)
            )
        return closures.quantify(call.name, each, bodies[0][0], cost), BOOL

    def _opt_map(self, call: CallNode, variable: str) -> Typed:
        assert call.of is not None
        run, kind = self.node(call.of)
        inside = Compiler({**self._variables, variable: kind.element or DYN})
        body, below = inside.node(call.args[1])
        flat = call.name == "optFlatMap"

        def apply(env: Env) -> Any:
            found = run(env)
            if not isinstance(found, Optional) or not found.there:
                return NONE
            made = body({**env, variable: found.value})
            return made if flat else Optional(True, made)

        return apply, Type("optional", element=below)


def _qualified(of: Node, name: str) -> str:
    return f"{of.name}.{name}" if isinstance(of, Name) else ""


__all__ = ["LIST", "parse_duration", "program"]
