"""Parses CEL to a syntax tree by precedence climbing over a token list."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.errors import Invalid

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>//[^\n]*)
    |(?P<raw>[bB]?[rR][bB]?(?:'[^']*'|"[^"]*"))
    |(?P<text>[bB]?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+)
    |(?P<hex>0x[0-9a-fA-F]+)u?|(?P<int>\d+)u?
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`[^`]+`)
    |(?P<op>\|\||&&|==|!=|<=|>=|\[\?|\.\?|[-+*/%!<>?:.,()\[\]{}]))""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}
_BINARY = {
    "||": 1, "&&": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "in": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "%": 6,
}  # fmt: skip


MAX_EXPRESSION = 100_000  # characters
MAX_DIGITS = 66
MAX_NESTING = 100  # of parentheses, and of the tree; every level costs frames of a bounded stack


class CelSyntaxError(Invalid):
    """The expression is not valid CEL or uses an unsupported feature."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    of: "Node"
    field: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    of: "Node"
    at: "Node"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CallNode:
    """A function call, a method call if ``of`` is set, or an operator."""

    name: str
    args: "tuple[Node, ...]"
    of: "Node | None" = None


@dataclass(frozen=True, slots=True)
class ListOf:
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class MapOf:
    items: "tuple[tuple[Node, Node], ...]"


Node = Literal | Name | Select | Index | CallNode | ListOf | MapOf
Token = tuple[str, str]


def tokens(text: str) -> list[Token]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise CelSyntaxError(
                f"Syntax error: token recognition error at: '{text[at : at + 10]}'"
            )
        at = match.end()
        kind = match.lastgroup or ""
        if kind != "comment":
            found.append((kind, match[kind]))
    return [*found, ("end", "")]


def unescape(body: str) -> str:
    def put(match: "re.Match[str]") -> str:
        what = match[1]
        if what[0] in "xuU":
            code = int(what[1:], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise CelSyntaxError(f"invalid unicode code point: {what}")
            return chr(code)
        return _ESCAPES.get(what, what)

    return re.sub(
        r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", put, body, flags=re.DOTALL
    )


def text_of(token: str) -> str | bytes:
    is_bytes = token[0] in "bB"
    body = token.lstrip("bB")
    quotes = 3 if body[:3] in ("'''", '"""') else 1
    found = unescape(body[quotes:-quotes])
    return found.encode() if is_bytes else found


class Parser:
    """One expression."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_EXPRESSION:
            raise CelSyntaxError(
                f"expression code point size exceeds limit: size: {len(text)}, limit"
                f" {MAX_EXPRESSION}"
            )
        self._tokens, self._at = tokens(text), 0
        self._nesting = 0

    def parse(self) -> Node:
        found = self._ternary()
        if self._peek()[0] != "end":
            raise self._unexpected()
        if _is_deeper(found, MAX_NESTING):
            raise CelSyntaxError("max recursion depth exceeded")
        return found

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _is(self, op: str) -> bool:
        return self._peek() == ("op", op)

    def _take(self, op: str) -> bool:
        if self._is(op):
            self._at += 1
            return True
        return False

    def _need(self, op: str) -> None:
        if not self._take(op):
            raise self._unexpected()

    def _unexpected(self) -> CelSyntaxError:
        return CelSyntaxError(f"Syntax error: mismatched input '{self._peek()[1] or '<EOF>'}'")

    def _ternary(self) -> Node:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise CelSyntaxError(f"expression recursion limit exceeded: {MAX_NESTING}")
        found = self._conditional()
        self._nesting -= 1
        return found

    def _conditional(self) -> Node:
        test = self._binary(1)
        if not self._take("?"):
            return test
        yes = self._binary(1) if not self._is("?") else self._ternary()
        self._need(":")
        return CallNode("?:", (test, yes, self._ternary()))

    def _binary(self, level: int) -> Node:
        left = self._unary()
        while True:
            kind, op = self._peek()
            power = _BINARY.get(op, 0) if kind in ("op", "name") else 0
            if power < level:
                return left
            if op in ("&&", "||"):
                left = self._chain(op, left, power)
                continue
            self._at += 1
            left = CallNode(op, (left, self._binary(power + 1)))

    def _chain(self, op: str, first: Node, power: int) -> Node:
        """Parse ``a && b && …`` to a balanced tree, so that long chains are not deep."""
        terms = [first]
        while self._take(op):
            terms.append(self._binary(power + 1))
        while len(terms) > 1:
            pairs = [tuple(terms[at : at + 2]) for at in range(0, len(terms), 2)]
            terms = [CallNode(op, pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return terms[0]

    def _unary(self) -> Node:
        negations = 0
        while self._take("!"):
            negations += 1
        if negations:
            inner = self._unary()
            return CallNode("!", (inner,)) if negations % 2 else inner
        if self._take("-"):
            return self._negative()
        return self._member(self._primary())

    def _negative(self) -> Node:
        negations = 1
        while self._take("-"):
            negations += 1
        inner = self._member(self._primary())
        if negations % 2 == 0:
            return inner
        if isinstance(inner, Literal) and isinstance(inner.value, (int, float)):
            return Literal(-inner.value)
        return CallNode("neg", (inner,))

    def _member(self, of: Node) -> Node:
        while True:
            if self._take("."):
                of = self._dotted(of)
            elif self._take(".?"):
                of = Select(of, self._field(), optional=True)
            elif self._take("["):
                of = Index(of, self._ternary())
                self._need("]")
            elif self._take("[?"):
                of = Index(of, self._ternary(), optional=True)
                self._need("]")
            else:
                return of

    def _field(self) -> str:
        kind, text = self._next()
        if kind == "quoted":
            return text[1:-1]
        if kind != "name":
            self._at -= 1
            raise self._unexpected()
        return text

    def _dotted(self, of: Node) -> Node:
        field = self._field()
        if self._take("("):
            return CallNode(field, self._arguments(")"), of)
        return Select(of, field)

    def _arguments(self, end: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self._take(end):
            found.append(self._ternary())
            if not self._take(",") and not self._is(end):
                raise self._unexpected()
        return tuple(found)

    def _primary(self) -> Node:
        kind, text = self._next()
        match kind:
            case "int":
                return Literal(_integer(text, 10))
            case "hex":
                return Literal(_integer(text, 16))
            case "float":
                return Literal(float(text))
            case "text":
                return Literal(text_of(text))
            case "raw":
                return Literal(text[text.index(text[-1]) + 1 : -1])
            case "name":
                return self._named(text)
        if (kind, text) == ("op", "("):
            found = self._ternary()
            self._need(")")
            return found
        if (kind, text) == ("op", "["):
            return ListOf(self._arguments("]"))
        if (kind, text) == ("op", "{"):
            return MapOf(self._pairs())
        if (kind, text) == ("op", "."):
            return self._primary()
        self._at -= 1
        raise self._unexpected()

    def _pairs(self) -> tuple[tuple[Node, Node], ...]:
        found = []
        while not self._take("}"):
            key = self._ternary()
            self._need(":")
            found.append((key, self._ternary()))
            if not self._take(",") and not self._is("}"):
                raise self._unexpected()
        return tuple(found)

    def _named(self, text: str) -> Node:
        if text in ("true", "false"):
            return Literal(text == "true")
        if text == "null":
            return Literal(None)
        if self._take("("):
            return CallNode(text, self._arguments(")"))
        return Name(text)


def _integer(text: str, base: int) -> int:
    if len(text) > MAX_DIGITS or (value := int(text, base)) >= 2**64:
        raise CelSyntaxError("invalid int literal")
    return value


def children(node: Node) -> "Sequence[Node]":
    """Return the direct children of a node."""
    match node:
        case Select(of, _, _):
            return (of,)
        case Index(of, at, _):
            return (of, at)
        case CallNode(_, args, of):
            return args if of is None else (of, *args)
        case ListOf(items):
            return items
        case MapOf(pairs):
            return [part for pair in pairs for part in pair]
    return ()


def _is_deeper(node: Node, limit: int) -> bool:
    """Report whether a tree is deeper than a limit, without recursion."""
    level: list[Node] = [node]
    for _ in range(limit):
        level = [child for parent in level for child in children(parent)]
        if not level:
            return False
    return True


def parse(text: str) -> Node:
    return Parser(text).parse()


def names_in(node: Node) -> set[str]:
    """Yield every identifier an expression mentions."""
    match node:
        case Name(name):
            return {name}
        case Select(of, _, _):
            return names_in(of)
        case Index(of, at, _):
            return names_in(of) | names_in(at)
        case CallNode(_, args, of):
            return _all(args) | (names_in(of) if of is not None else set())
        case ListOf(items):
            return _all(items)
        case MapOf(items):
            return {n for pair in items for part in pair for n in names_in(part)}
    return set()


def _all(nodes: "Sequence[Node]") -> set[str]:
    return {name for node in nodes for name in names_in(node)}
