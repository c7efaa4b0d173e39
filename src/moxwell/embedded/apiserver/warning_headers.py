"""Formats warnings as a ``Warning`` header, without control characters and within a limit."""

from collections.abc import Iterator, Sequence

MAX_TOTAL, MAX_ITEM = 4096, 256  # characters, as in kube-apiserver


def warning_header(warnings: Sequence[str]) -> dict[str, str]:
    """Format warnings as one header, joined by commas."""
    joined = ", ".join(f'299 - "{_escaped(text)}"' for text in _limited(warnings))
    return {"warning": joined} if joined else {}


def _escaped(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')


def _limited(warnings: Sequence[str]) -> Iterator[str]:
    """Shorten the warnings that do not fit, and drop the rest."""
    total = 0
    for text in warnings:
        short = text if total + len(text) <= MAX_TOTAL else text[:MAX_ITEM]
        total += len(short)
        if total > MAX_TOTAL:
            return
        yield short
