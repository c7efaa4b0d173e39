"""Parses a Go template into its syntax tree."""

from collections.abc import Collection

from moxwell.bootstrap.go_templates import lexer, pipeline_parser
from moxwell.bootstrap.go_templates.nodes import (
    ActionNode,
    BranchNode,
    LoopControlNode,
    ParsedTemplate,
    PipelineNode,
    SyntaxNode,
    TemplateCallNode,
    TextNode,
)
from moxwell.bootstrap.go_templates.token_stream import TokenStream

Body = tuple[SyntaxNode, ...]
MAX_DEPTH = 60


def parse(source: str, functions: Collection[str]) -> ParsedTemplate:
    """Parse a template; ``functions`` are the names it may call."""
    return _Parser(source, functions).run()


class _Parser:
    """Parses one source; variables and loops are known by the enclosing bodies."""

    def __init__(self, source: str, functions: Collection[str]) -> None:
        self._stream = TokenStream(source, tuple(lexer.tokens(source)), frozenset(functions))
        self._defined: dict[str, Body] = {}
        self._loops = 0
        self._depth = 0

    def run(self) -> ParsedTemplate:
        body, ending = self._body(top=True)
        if ending != "eof":
            raise self._stream.error(f"unexpected {{{{{ending}}}}}")
        return ParsedTemplate(self._stream.source, body, self._defined)

    def _body(self, *, top: bool = False) -> tuple[Body, str]:
        """Read nodes up to ``end``, ``else`` or the end of the source."""
        stream, nodes = self._stream, list[SyntaxNode]()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise stream.error(f"actions are nested deeper than {MAX_DEPTH}")
        while True:
            token = stream.next()
            if token.kind == "eof":
                break
            if token.kind == "text":
                nodes.append(TextNode(token.offset, token.text))
                continue
            word = stream.peek_word()
            if word in ("end", "else"):
                stream.next_word()
                self._depth -= 1
                return tuple(nodes), word
            nodes += self._action(token.offset, top)
        self._depth -= 1
        return tuple(nodes), "eof"

    def _action(self, offset: int, top: bool) -> Body:
        stream, word = self._stream, self._stream.peek_word()
        if word == "define":
            return self._define(top)
        if word in ("if", "with", "range"):
            stream.next_word()
            return (self._branch(offset, word),)
        if word in ("break", "continue"):
            return (self._loop_control(offset),)
        if word in ("template", "block"):
            return self._call(offset, block=word == "block")
        pipeline = pipeline_parser.pipeline(stream, "command", "right")
        return (ActionNode(offset, pipeline),)

    def _branch(self, offset: int, keyword: str) -> BranchNode:
        stream = self._stream
        mark = stream.mark()
        pipeline = pipeline_parser.pipeline(stream, keyword, "right")
        self._loops += keyword == "range"
        body, ending = self._body()
        self._loops -= keyword == "range"
        otherwise = self._otherwise(keyword) if ending == "else" else self._closed(ending)
        stream.forget(mark)
        return BranchNode(offset, keyword, pipeline, body, otherwise)

    def _otherwise(self, keyword: str) -> Body:
        """Read the body after ``else``; ``else if`` and ``else with`` are a branch in it."""
        stream, offset = self._stream, self._stream.offset
        word = stream.peek_word()
        if word == keyword and keyword in ("if", "with"):
            stream.next_word()
            return (self._branch(offset, word),)
        stream.expect("right", "else")
        body, ending = self._body()
        if ending == "else":
            raise stream.error("expected end; found {{else}}")
        self._closed(ending)
        return body

    def _closed(self, ending: str) -> Body:
        if ending == "eof":
            raise self._stream.error("unexpected EOF")
        self._stream.expect("right", "end")
        return ()

    def _loop_control(self, offset: int) -> LoopControlNode:
        token = self._stream.next_word()
        self._stream.expect("right", token.kind)
        if not self._loops:
            raise self._stream.error(f"{{{{{token.kind}}}}} outside {{{{range}}}}")
        return LoopControlNode(offset, token.kind)

    def _define(self, top: bool) -> Body:
        stream = self._stream
        stream.next_word()
        if not top:
            raise stream.error("unexpected {{define}}")
        name = stream.string("define")
        stream.expect("right", "define")
        self._add(name, self._separate_body())
        return ()

    def _call(self, offset: int, *, block: bool) -> Body:
        stream = self._stream
        keyword = stream.next_word().kind
        name = stream.string(f"{keyword} clause")
        pipeline: PipelineNode | None = None
        if block or stream.peek_word() != "right":
            pipeline = pipeline_parser.pipeline(stream, f"{keyword} clause", "right")
        else:
            stream.expect("right", keyword)
        if block:
            self._add(name, self._separate_body())
        return (TemplateCallNode(offset, name, pipeline),)

    def _separate_body(self) -> Body:
        """Read the body of a defined template, which sees no variables and no loop."""
        mark, loops = self._stream.hide(), self._loops
        self._loops = 0
        body, ending = self._body()
        if ending == "else":
            raise self._stream.error("unexpected {{else}}")
        self._closed(ending)
        self._stream.unhide(mark)
        self._loops = loops
        return body

    def _add(self, name: str, body: Body) -> None:
        empty = all(isinstance(n, TextNode) and not n.text.strip() for n in body)
        if name in self._defined and not empty:
            old = self._defined[name]
            if not all(isinstance(n, TextNode) and not n.text.strip() for n in old):
                raise self._stream.error(f"multiple definition of template {name!r}")
        if not empty or name not in self._defined:
            self._defined[name] = body
