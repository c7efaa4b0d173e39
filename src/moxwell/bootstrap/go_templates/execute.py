"""Executes a parsed template with data."""

from collections.abc import Iterator, Mapping
from typing import Any

from moxwell.bootstrap.go_templates.errors import FunctionFailed, TemplateFailed, locate
from moxwell.bootstrap.go_templates.evaluate import Evaluator
from moxwell.bootstrap.go_templates.nodes import (
    ActionNode,
    BranchNode,
    LoopControlNode,
    ParsedTemplate,
    SyntaxNode,
    TemplateCallNode,
    TextNode,
)
from moxwell.bootstrap.go_templates.printing import printed
from moxwell.bootstrap.go_templates.signatures import TemplateFunction
from moxwell.bootstrap.go_templates.values import NO_VALUE, go_type, is_nil, pointed, truth

MAX_STEPS = 200_000
MAX_OUTPUT = 4 * 1024 * 1024
MAX_CALLS = 60
Nodes = tuple[SyntaxNode, ...]


def execute(template: ParsedTemplate, data: Any, functions: Mapping[str, TemplateFunction]) -> str:
    """Return what the template prints for the data."""
    return _Execution(template, functions).run(data)


class _Execution:
    """One execution: its output so far, its variables and what it may still do."""

    def __init__(self, template: ParsedTemplate, functions: Mapping[str, TemplateFunction]) -> None:
        self._template = template
        self._evaluator = Evaluator(functions, self._spend)
        self._out: list[str] = []
        self._size = 0
        self._steps = 0
        self._calls = 0
        self._node: SyntaxNode = TextNode(0, "")

    def run(self, data: Any) -> str:
        self._evaluator.declare("$", data)
        try:
            self._walk(self._template.body, data)
        except FunctionFailed as error:
            at = self._evaluator.offset or self._node.offset
            raise TemplateFailed(str(error), *locate(self._template.source, at)) from error
        return "".join(self._out)

    def _spend(self, size: int = 0) -> None:
        self._steps += 1
        self._size += size
        if self._steps > MAX_STEPS:
            raise FunctionFailed(f"the template takes more than {MAX_STEPS} steps")
        if self._size > MAX_OUTPUT:
            raise FunctionFailed(f"the template prints more than {MAX_OUTPUT} characters")

    def _print(self, text: str) -> None:
        self._spend(len(text))
        self._out.append(text)

    def _walk(self, nodes: Nodes, dot: Any) -> str:
        """Execute nodes; returns "break" or "continue" if one of them ends the iteration."""
        for node in nodes:
            self._node = node
            self._evaluator.offset = 0
            if control := self._step(node, dot):
                return control
        return ""

    def _step(self, node: SyntaxNode, dot: Any) -> str:
        if isinstance(node, TextNode):
            self._print(node.text)
        elif isinstance(node, ActionNode):
            value = self._evaluator.pipeline(node.pipeline, dot)
            if not node.pipeline.variables:
                self._print(printed(value))
        elif isinstance(node, BranchNode):
            return self._branch(node, dot)
        elif isinstance(node, LoopControlNode):
            return node.keyword
        elif isinstance(node, TemplateCallNode):
            self._call(node, dot)
        return ""

    def _branch(self, node: BranchNode, dot: Any) -> str:
        mark = self._evaluator.mark()
        try:
            if node.keyword == "range":
                return self._range(node, dot)
            value = self._evaluator.pipeline(node.pipeline, dot)
            inner = value if node.keyword == "with" and truth(value) else dot
            return self._walk(node.body if truth(value) else node.otherwise, inner)
        finally:
            self._evaluator.forget(mark)

    def _range(self, node: BranchNode, dot: Any) -> str:
        value = self._evaluator.pipeline(node.pipeline, dot, bind=False)
        empty = True
        for key, item in _entries(value, len(node.pipeline.variables)):
            empty = False
            mark = self._evaluator.mark()
            self._evaluator.bind_entry(node.pipeline, key, item)
            self._spend()
            control = self._walk(node.body, item)
            self._evaluator.forget(mark)
            if control == "break":
                break
        return self._walk(node.otherwise, dot) if empty else ""

    def _call(self, node: TemplateCallNode, dot: Any) -> None:
        body = self._template.defined.get(node.name)
        if body is None:
            raise FunctionFailed(f"template {node.name!r} not defined")
        value = self._evaluator.pipeline(node.pipeline, dot) if node.pipeline else NO_VALUE
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise FunctionFailed(f"templates call each other deeper than {MAX_CALLS}")
        hidden = self._evaluator.hide(value)
        self._walk(body, value)
        self._evaluator.unhide(hidden)
        self._calls -= 1


def _entries(value: Any, variables: int) -> Iterator[tuple[Any, Any]]:
    """Yield key and item of what a range iterates over."""
    value = pointed(value)
    if is_nil(value):
        return iter(())
    if isinstance(value, list | tuple):
        return iter(enumerate(value))
    if isinstance(value, dict):
        return ((key, value[key]) for key in sorted(value))
    if isinstance(value, int) and not isinstance(value, bool):
        if variables > 1:
            raise FunctionFailed(f"can't use {int(value)} to iterate over more than one variable")
        return ((number, number) for number in range(value))
    raise FunctionFailed(f"range can't iterate over {printed(value)} of type {go_type(value)}")
