"""Parses pipelines: variables, commands, operands and their fields."""

from dataclasses import replace

from moxwell.bootstrap.go_templates import literals
from moxwell.bootstrap.go_templates.lexer import Token
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
from moxwell.bootstrap.go_templates.token_stream import TokenStream

MAX_PARENTHESES = 60
_VALUES = (DotNode, NilNode, LiteralNode)


def pipeline(stream: TokenStream, context: str, end: str, depth: int = 0) -> PipelineNode:
    """Parse a pipeline up to its closing delimiter or parenthesis."""
    if depth > MAX_PARENTHESES:
        raise stream.error(f"parentheses are nested deeper than {MAX_PARENTHESES}")
    stream.skip_space()
    offset = stream.offset
    variables, declares = _variables(stream, context)
    commands: list[CommandNode] = []
    while stream.peek_word() != end:
        commands.append(_command(stream, context, depth))
    stream.next_word()
    if not commands:
        raise stream.error(f"missing value for {context}")
    _check_stages(stream, commands)
    return PipelineNode(offset, tuple(commands), variables, declares)


def _variables(stream: TokenStream, context: str) -> tuple[tuple[str, ...], bool]:
    """Read ``$x :=``, ``$x =`` or, of a range, ``$i, $x :=``."""
    first = stream.peek()
    names: list[str] = []
    while stream.peek_word() == "variable":
        names.append(stream.next().text)
        following = stream.next_word()
        if following.kind in ("declare", "assign"):
            return _declared(stream, names, following)
        if following.kind != "comma" or context != "range" or len(names) > 1:
            break
        if stream.peek_word() != "variable":
            raise stream.unexpected(stream.peek(), "range")
    stream.rewind(first)
    return (), True


def _declared(
    stream: TokenStream, names: list[str], operator: Token
) -> tuple[tuple[str, ...], bool]:
    declares = operator.kind == "declare"
    for name in names:
        if declares:
            stream.declare(name)
        elif not stream.is_declared(name):
            raise stream.error(f"undefined variable {name!r}", operator)
    return tuple(names), declares


def _check_stages(stream: TokenStream, commands: list[CommandNode]) -> None:
    for number, command in enumerate(commands[1:], start=2):
        if isinstance(command.arguments[0], _VALUES):
            raise stream.error(f"non executable command in pipeline stage {number}")


def _command(stream: TokenStream, context: str, depth: int) -> CommandNode:
    stream.skip_space()
    offset = stream.offset
    arguments: list[SyntaxNode] = []
    while True:
        stream.skip_space()
        if (operand := _operand(stream, depth)) is not None:
            arguments.append(operand)
        token = stream.peek()
        if token.kind == "space":
            continue
        if token.kind == "pipe":
            stream.next()
            if not arguments:
                raise stream.error(f"missing value for {context}")
            break
        if token.kind in ("right", "rparen"):
            break
        raise stream.unexpected(token, "operand")
    if not arguments:
        raise stream.error("empty command")
    return CommandNode(offset, tuple(arguments))


def _operand(stream: TokenStream, depth: int) -> SyntaxNode | None:
    node = _term(stream, depth)
    if node is None or stream.peek().kind != "field":
        return node
    names: list[str] = []
    while stream.peek().kind == "field":
        names.append(stream.next().text[1:])
    if isinstance(node, FieldNode | VariableNode):
        return replace(node, names=(*node.names, *names))
    if isinstance(node, _VALUES):
        raise stream.error("unexpected . after term")
    return ChainNode(node.offset, node, tuple(names))


def _term(stream: TokenStream, depth: int) -> SyntaxNode | None:
    token = stream.peek()
    offset = token.offset
    if token.kind == "lparen":
        stream.next()
        return pipeline(stream, "parenthesized pipeline", "rparen", depth + 1)
    if token.kind in ("space", "pipe", "right", "rparen", "eof", "comma", "declare", "assign"):
        return None
    if (node := _name(stream, token) or _constant(stream, token)) is None:
        return None
    stream.next()
    return replace(node, offset=offset)


def _name(stream: TokenStream, token: Token) -> SyntaxNode | None:
    if token.kind == "dot":
        return DotNode(0)
    if token.kind == "nil":
        return NilNode(0)
    if token.kind == "field":
        return FieldNode(0, (token.text[1:],))
    if token.kind == "variable":
        if not stream.is_declared(token.text):
            raise stream.error(f"undefined variable {token.text!r}", token)
        return VariableNode(0, token.text)
    if token.kind == "identifier":
        if token.text not in stream.functions:
            raise stream.error(f"function {token.text!r} not defined", token)
        return FunctionNode(0, token.text)
    return None


def _constant(stream: TokenStream, token: Token) -> LiteralNode | None:
    if token.kind == "bool":
        return LiteralNode(0, token.text == "true")
    if token.kind in ("string", "raw"):
        return LiteralNode(0, stream.unquoted(token))
    if token.kind == "char":
        text = stream.unquoted(token)
        if len(text) != 1:
            raise stream.error("malformed character constant", token)
        return LiteralNode(0, ord(text))
    if token.kind == "number":
        try:
            return LiteralNode(0, literals.number(token.text))
        except (ValueError, OverflowError) as error:
            raise stream.error(f"bad number {token.text}: {error}", token) from error
    return None
