"""Renders a Go template with data."""

from typing import Any

from moxwell.bootstrap.go_templates.errors import TemplateFailed
from moxwell.bootstrap.go_templates.execute import execute
from moxwell.bootstrap.go_templates.functions import all_functions
from moxwell.bootstrap.go_templates.parser import parse

MAX_SOURCE = 1024 * 1024


def render(source: str, data: Any) -> str:
    """Return what the template prints; TemplateFailed names line and column of a mistake."""
    if len(source) > MAX_SOURCE:
        raise TemplateFailed(f"the template is longer than {MAX_SOURCE} characters")
    functions = all_functions()
    return execute(parse(source, functions.keys()), data, functions)
