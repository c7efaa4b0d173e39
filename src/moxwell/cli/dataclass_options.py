"""Builds a command from a dataclass: its fields are the options of the command."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Options = TypeVar("Options")


def command(options: type[Options]) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """A decorator for ``def run(options)``; the fields are annotated as parameters of a command."""

    def decorate(run: Callable[[Options], None]) -> Callable[..., None]:
        @functools.wraps(run)
        def call(**values: Any) -> None:
            run(options(**values))

        parameters = inspect.signature(options, eval_str=True).parameters.values()
        call.__annotations__ = {p.name: p.annotation for p in parameters}
        call.__signature__ = inspect.Signature(list(parameters))  # type: ignore[attr-defined]
        del call.__wrapped__
        return call

    return decorate
