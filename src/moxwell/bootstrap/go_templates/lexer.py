"""Splits a Go template into text and the tokens of its actions."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from moxwell.bootstrap.go_templates.errors import TemplateFailed, locate

KEYWORDS = frozenset(
    (
        "block",
        "break",
        "continue",
        "define",
        "else",
        "end",
        "if",
        "nil",
        "range",
        "template",
        "with",
    )
)
_SPACE = " \t\r\n"
_TOKEN = re.compile(
    r"""
    (?P<right_trim>[ \t\r\n]+-\}\}) | (?P<right>\}\})
  | (?P<space>[ \t\r\n]+)
  | (?P<declare>:=) | (?P<assign>=) | (?P<comma>,) | (?P<pipe>\|)
  | (?P<lparen>\() | (?P<rparen>\))
  | (?P<string>"(?:\\.|[^"\\\n])*") | (?P<raw>`[^`]*`) | (?P<char>'(?:\\.|[^'\\\n])+')
  | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_.]+(?:[pP][+-]?[0-9_]+)?|0[bB][01_]+|0[oO][0-7_]+
      |(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)i?)
  | (?P<variable>\$\w*) | (?P<field>\.[^\W\d]\w*) | (?P<dot>\.)
  | (?P<identifier>[^\W\d]\w*)
    """,
    re.VERBOSE,
)
_WORDS = ("variable", "field", "identifier", "number")
_AFTER_WORD = re.compile(r"[ \t\r\n.,|:=()]|\}\}|$")


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its offset in the template."""

    kind: str
    text: str
    offset: int


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens; text and actions alternate, comments are left out."""
    position = 0
    trim = False
    while (left := source.find("{{", position)) >= 0:
        trimmed_left = source[left + 2 : left + 3] == "-" and source[left + 3 : left + 4] in (
            *_SPACE,
        )
        yield from _text(source, position, left, trim, trimmed_left)
        start = left + (4 if trimmed_left else 2)
        if (end := _comment_end(source, left, start)) is not None:
            position, trim = end
            continue
        yield Token("left", "{{", left)
        position = start
        for token in _action(source, left, start):
            position = token.offset + len(token.text)
            trim = token.kind == "right_trim"
            yield Token("right", "}}", token.offset) if trim else token
    yield from _text(source, position, len(source), trim, False)
    yield Token("eof", "", len(source))


def _text(source: str, start: int, end: int, trim_left: bool, trim_right: bool) -> Iterator[Token]:
    text = source[start:end]
    if trim_left:
        stripped = text.lstrip(_SPACE)
        start, text = start + len(text) - len(stripped), stripped
    if trim_right:
        text = text.rstrip(_SPACE)
    if text:
        yield Token("text", text, start)


def _comment_end(source: str, left: int, start: int) -> tuple[int, bool] | None:
    """Return where a comment ends and whether it trims the text after it; None if it is none."""
    if not source.startswith("/*", start):
        return None
    close = source.find("*/", start + 2)
    if close < 0:
        raise failure(source, left, "unclosed comment")
    found = re.compile(r"[ \t\r\n]-\}\}|\}\}").match(source, close + 2)
    if not found:
        raise failure(source, left, "comment ends before closing delimiter")
    return found.end(), found[0] != "}}"


def _action(source: str, left: int, position: int) -> Iterator[Token]:
    """Yield the tokens of one action, up to its closing delimiter."""
    depth = 0
    while True:
        found = _TOKEN.match(source, position)
        if not found:
            raise _unexpected(source, left, position)
        kind = str(found.lastgroup)
        yield Token(_kind(kind, found[0]), found[0], position)
        depth += (kind == "lparen") - (kind == "rparen")
        if depth < 0:
            raise failure(source, position, "unexpected right paren")
        position = found.end()
        if kind in ("right", "right_trim"):
            if depth:
                raise failure(source, position - 2, "unclosed left paren")
            return
        if kind in _WORDS and not _AFTER_WORD.match(source, position):
            raise failure(source, position, f"bad character {source[position]!r}")


def _kind(kind: str, text: str) -> str:
    if kind != "identifier":
        return kind
    if text in ("true", "false"):
        return "bool"
    return text if text in KEYWORDS else kind


def _unexpected(source: str, left: int, position: int) -> TemplateFailed:
    if position >= len(source):
        return failure(source, left, "unclosed action")
    quote = {'"': "quoted string", "`": "raw quoted string", "'": "character constant"}
    if name := quote.get(source[position]):
        return failure(source, position, f"unterminated {name}")
    return failure(source, position, f"unexpected {source[position]!r} in an action")


def failure(source: str, offset: int, message: str) -> TemplateFailed:
    """Build the error of a template that does not parse."""
    return TemplateFailed(message, *locate(source, offset))
