"""The syntax tree of a Go template."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A part of the template and its offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class DotNode(SyntaxNode):
    """The value of dot."""


@dataclass(frozen=True, slots=True)
class NilNode(SyntaxNode):
    """The untyped constant nil."""


@dataclass(frozen=True, slots=True)
class LiteralNode(SyntaxNode):
    """A string, boolean, integer or float constant."""

    value: str | bool | int | float


@dataclass(frozen=True, slots=True)
class FieldNode(SyntaxNode):
    """``.a.b`` of dot."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VariableNode(SyntaxNode):
    """``$x.a.b``."""

    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionNode(SyntaxNode):
    """The name of a function."""

    name: str


@dataclass(frozen=True, slots=True)
class CommandNode(SyntaxNode):
    """A function or operand with arguments."""

    arguments: "tuple[SyntaxNode, ...]"


@dataclass(frozen=True, slots=True)
class PipelineNode(SyntaxNode):
    """Commands, each of which gets the value of the previous one as last argument."""

    commands: tuple[CommandNode, ...]
    variables: tuple[str, ...] = ()
    declares: bool = True


@dataclass(frozen=True, slots=True)
class ChainNode(SyntaxNode):
    """Fields of a parenthesized pipeline or of a function without arguments."""

    operand: SyntaxNode
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextNode(SyntaxNode):
    """Text outside actions."""

    text: str


@dataclass(frozen=True, slots=True)
class ActionNode(SyntaxNode):
    """An action that prints its value, unless it sets a variable."""

    pipeline: PipelineNode


@dataclass(frozen=True, slots=True)
class BranchNode(SyntaxNode):
    """``if``, ``with`` or ``range`` with its two bodies."""

    keyword: str
    pipeline: PipelineNode
    body: "tuple[SyntaxNode, ...]"
    otherwise: "tuple[SyntaxNode, ...]" = ()


@dataclass(frozen=True, slots=True)
class LoopControlNode(SyntaxNode):
    """``break`` or ``continue``."""

    keyword: str


@dataclass(frozen=True, slots=True)
class TemplateCallNode(SyntaxNode):
    """``template "name" pipeline``."""

    name: str
    pipeline: PipelineNode | None


@dataclass(frozen=True, slots=True)
class ParsedTemplate:
    """A template and the templates that it defines."""

    source: str
    body: tuple[SyntaxNode, ...]
    defined: Mapping[str, tuple[SyntaxNode, ...]]
