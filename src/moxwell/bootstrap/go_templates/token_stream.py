"""The tokens of a template with look-ahead, and the variables that are in scope."""

from moxwell.bootstrap.go_templates import literals
from moxwell.bootstrap.go_templates.errors import TemplateFailed
from moxwell.bootstrap.go_templates.lexer import Token, failure


class TokenStream:
    """Reads tokens in order; ``word`` methods skip spaces."""

    def __init__(self, source: str, tokens: tuple[Token, ...], functions: frozenset[str]) -> None:
        self.source, self.functions = source, functions
        self._tokens, self._position = tokens, 0
        self._variables = ["$"]

    @property
    def offset(self) -> int:
        return self._tokens[self._position].offset

    def peek(self) -> Token:
        return self._tokens[self._position]

    def next(self) -> Token:
        token = self._tokens[self._position]
        self._position += token.kind != "eof"
        return token

    def skip_space(self) -> None:
        while self.peek().kind == "space":
            self._position += 1

    def peek_word(self) -> str:
        """The kind of the next token that is no space."""
        self.skip_space()
        return self.peek().kind

    def next_word(self) -> Token:
        self.skip_space()
        return self.next()

    def rewind(self, token: Token) -> None:
        """Go back to a token that was read."""
        while self._tokens[self._position] is not token:
            self._position -= 1

    def expect(self, kind: str, context: str) -> Token:
        token = self.next_word()
        if token.kind != kind:
            raise self.unexpected(token, context)
        return token

    def string(self, context: str) -> str:
        """Read a quoted name."""
        token = self.next_word()
        if token.kind not in ("string", "raw"):
            raise self.unexpected(token, context)
        return self.unquoted(token)

    def unquoted(self, token: Token) -> str:
        try:
            return literals.unquote(token.text)
        except ValueError as error:
            raise self.error(str(error), token) from error

    def declare(self, name: str) -> None:
        self._variables.append(name)

    def is_declared(self, name: str) -> bool:
        return name in self._variables

    def mark(self) -> int:
        return len(self._variables)

    def forget(self, mark: int) -> None:
        """End the scope of the variables declared since the mark."""
        del self._variables[mark:]

    def hide(self) -> list[str]:
        """Start a template of its own, which sees only ``$``."""
        hidden, self._variables = self._variables, ["$"]
        return hidden

    def unhide(self, hidden: list[str]) -> None:
        self._variables = hidden

    def error(self, message: str, token: Token | None = None) -> TemplateFailed:
        return failure(self.source, (token or self._last()).offset, message)

    def unexpected(self, token: Token, context: str) -> TemplateFailed:
        what = "EOF" if token.kind == "eof" else f"{token.text!r}"
        return self.error(f"unexpected {what} in {context}", token)

    def _last(self) -> Token:
        return self._tokens[max(self._position - 1, 0)]
