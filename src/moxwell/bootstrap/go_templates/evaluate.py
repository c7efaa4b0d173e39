"""Evaluates pipelines, commands, fields and variables."""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.bootstrap.go_templates.builtins import SHORT_CIRCUIT
from moxwell.bootstrap.go_templates.errors import FunctionFailed
from moxwell.bootstrap.go_templates.nodes import (
    ChainNode,
    CommandNode,
    DotNode,
    FieldNode,
    FunctionNode,
    LiteralNode,
    NilNode,
    PipelineNode,
    SyntaxNode,
    VariableNode,
)
from moxwell.bootstrap.go_templates.signatures import TemplateFunction
from moxwell.bootstrap.go_templates.values import (
    NIL_POINTER,
    NO_VALUE,
    go_type,
    is_struct,
    struct_fields,
    truth,
)

_NONE = object()


class Evaluator:
    """Holds the variables; ``spend`` counts the work."""

    def __init__(
        self, functions: Mapping[str, TemplateFunction], spend: Callable[[], None]
    ) -> None:
        self._functions, self._spend = functions, spend
        self._variables: list[tuple[str, Any]] = []
        self.offset = 0  # of the command that is evaluated, for errors

    def declare(self, name: str, value: Any) -> None:
        self._variables.append((name, value))

    def mark(self) -> int:
        return len(self._variables)

    def forget(self, mark: int) -> None:
        del self._variables[mark:]

    def hide(self, dot: Any) -> list[tuple[str, Any]]:
        """Start a template of its own, whose ``$`` is ``dot``."""
        hidden, self._variables = self._variables, [("$", dot)]
        return hidden

    def unhide(self, hidden: list[tuple[str, Any]]) -> None:
        self._variables = hidden

    def pipeline(self, node: PipelineNode, dot: Any, *, bind: bool = True) -> Any:
        """Return the value of a pipeline and set its variables."""
        value: Any = _NONE
        for command in node.commands:
            value = self._command(command, dot, value)
            if value is None:
                value = NO_VALUE
        if bind:
            for name in node.variables:
                self._set(name, value, node.declares)
        return value

    def bind_entry(self, node: PipelineNode, key: Any, item: Any) -> None:
        """Set the variables of a range."""
        values = (item,) if len(node.variables) == 1 else (key, item)
        for name, value in zip(node.variables, values, strict=False):
            self._set(name, value, node.declares)

    def _set(self, name: str, value: Any, declares: bool) -> None:
        if declares:
            self._variables.append((name, value))
            return
        for index in range(len(self._variables) - 1, -1, -1):
            if self._variables[index][0] == name:
                self._variables[index] = (name, value)
                return

    def _command(self, command: CommandNode, dot: Any, last: Any) -> Any:
        self._spend()
        self.offset = command.offset
        first, *rest = command.arguments
        if isinstance(first, FunctionNode):
            return self._function(first, rest, dot, last)
        if isinstance(first, NilNode):
            raise FunctionFailed("nil is not a command")
        if rest or last is not _NONE:
            raise FunctionFailed("can't give argument to a value that is no function")
        return self._operand(first, dot)

    def _function(self, node: FunctionNode, rest: list[SyntaxNode], dot: Any, last: Any) -> Any:
        extra = () if last is _NONE else (last,)
        function = self._functions[node.name]
        if node.name in SHORT_CIRCUIT and len(rest) + len(extra) > 0:
            return self._short_circuit(node.name, rest, dot, extra)
        arguments = tuple(self._operand(each, dot) for each in rest)
        self.offset = node.offset
        return function.call(node.name, (*arguments, *extra))

    def _short_circuit(
        self, name: str, rest: list[SyntaxNode], dot: Any, extra: tuple[Any, ...]
    ) -> Any:
        value: Any = NO_VALUE
        for each in rest:
            value = self._operand(each, dot)
            if truth(value) == (name == "or"):
                return value
        return extra[0] if extra else value

    def _operand(self, node: SyntaxNode, dot: Any) -> Any:
        if isinstance(node, DotNode):
            return dot
        if isinstance(node, NilNode):
            return None
        if isinstance(node, LiteralNode):
            return node.value
        if isinstance(node, FieldNode):
            return _chained(dot, node.names)
        if isinstance(node, VariableNode):
            return _chained(self._variable(node.name), node.names)
        if isinstance(node, ChainNode):
            return _chained(self._operand(node.operand, dot), node.names)
        if isinstance(node, PipelineNode):
            return self.pipeline(node, dot)
        if isinstance(node, FunctionNode):
            return self._functions[node.name].call(node.name, ())
        raise FunctionFailed(f"unexpected {type(node).__name__}")

    def _variable(self, name: str) -> Any:
        return next(value for each, value in reversed(self._variables) if each == name)


def _chained(value: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        value = _field(value, name)
    return value


def _field(value: Any, name: str) -> Any:
    if value is NO_VALUE:
        return NO_VALUE
    if isinstance(value, dict):
        return value.get(name, NO_VALUE)
    if is_struct(value):
        for each, _, inner in struct_fields(value):
            if each == name:
                return inner
    if value is None or value is NIL_POINTER:
        raise FunctionFailed(f"nil pointer evaluating .{name}")
    raise FunctionFailed(f"can't evaluate field {name} in type {go_type(value)}")
