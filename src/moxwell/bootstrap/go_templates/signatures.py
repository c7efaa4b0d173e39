"""Functions of templates with the Go types of their parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.bootstrap.go_templates.errors import FunctionFailed
from moxwell.bootstrap.go_templates.values import NO_VALUE, StringMap, Strings, go_type, pointed

MAX_RESULT = 4 * 1024 * 1024
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    "bool": lambda value: isinstance(value, bool),
    "[]string": lambda value: isinstance(value, Strings),
    "map[string]string": lambda value: isinstance(value, StringMap),
    "map[string]interface {}": lambda value: type(value) is dict,
}
_NIL: dict[str, Callable[[], Any]] = {
    "[]string": Strings,
    "map[string]string": StringMap,
    "map[string]interface {}": dict,
}


@dataclass(frozen=True, slots=True)
class TemplateFunction:
    """A function, the types of its parameters and of further ones."""

    run: Callable[..., Any]
    parameters: tuple[str, ...]
    variadic: str

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Check the arguments and call the function."""
        self._check_count(name, len(arguments))
        kinds = self.parameters + (self.variadic,) * (len(arguments) - len(self.parameters))
        checked = [_accepted(value, kind) for value, kind in zip(arguments, kinds, strict=True)]
        try:
            result = self.run(*checked)
        except FunctionFailed as error:
            raise FunctionFailed(f"error calling {name}: {error}") from error
        if isinstance(result, str) and len(result) > MAX_RESULT:
            raise FunctionFailed(f"error calling {name}: the result is longer than {MAX_RESULT}")
        return result

    def _check_count(self, name: str, count: int) -> None:
        least = len(self.parameters)
        if count < least or (count > least and not self.variadic):
            want = f"at least {least}" if self.variadic else str(least)
            raise FunctionFailed(f"wrong number of args for {name}: want {want} got {count}")


def signature(run: Callable[..., Any], *parameters: str, variadic: str = "") -> TemplateFunction:
    """Declare a function."""
    return TemplateFunction(run, parameters, variadic)


def _accepted(value: Any, kind: str) -> Any:
    if kind == "any":
        return None if value is NO_VALUE else value
    value = pointed(value)
    if value is NO_VALUE or value is None:
        if kind in _NIL:
            return _NIL[kind]()
        raise FunctionFailed(f"invalid value; expected {kind}")
    if not _CHECKS[kind](value):
        raise FunctionFailed(f"wrong type for value; expected {kind}; got {go_type(value)}")
    return value
