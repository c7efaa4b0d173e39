"""The line discipline of a simulated terminal: echoes what is typed and completes lines."""

from dataclasses import dataclass, field

MAX_LINE = 4096
INTERRUPT, END, BACKSPACE = 0x03, 0x04, (0x08, 0x7F)


@dataclass(frozen=True, slots=True)
class TypedLine:
    """A line that was completed; ``ended`` without a line is Ctrl-D."""

    text: str = ""
    ended: bool = False


@dataclass(slots=True)
class LineReader:
    """Splits input into lines; with ``tty`` it edits and returns what a terminal echoes."""

    tty: bool
    _line: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> tuple[bytes, list[TypedLine]]:
        """The bytes to echo and the lines that are complete."""
        echo, lines = bytearray(), list[TypedLine]()
        for byte in data:
            if byte in (0x0A, 0x0D):
                echo += b"\r\n"
                lines.append(self._take())
            elif self.tty and byte == INTERRUPT:
                self._line.clear()
                echo += b"^C\r\n"
                lines.append(TypedLine())
            elif self.tty and byte == END and not self._line:
                lines.append(TypedLine(ended=True))
            elif self.tty and byte in BACKSPACE:
                echo += b"\b \b" if self._line else b""
                del self._line[-1:]
            elif (byte >= 0x20 or byte == 0x09) and len(self._line) < MAX_LINE:
                self._line.append(byte)
                echo.append(byte)
        return (bytes(echo) if self.tty else b""), lines

    def end(self) -> list[TypedLine]:
        """The lines at the end of the input."""
        return [*([self._take()] if self._line else ()), TypedLine(ended=True)]

    def _take(self) -> TypedLine:
        text = self._line.decode(errors="replace")
        self._line.clear()
        return TypedLine(text)


def for_terminal(text: str, *, tty: bool) -> bytes:
    """Output as a terminal shows it."""
    return (text.replace("\n", "\r\n") if tty else text).encode()
