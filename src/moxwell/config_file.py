"""
Parses configuration files: YAML, flags, unknown keys. Errors name the place and never quote text.

The file of the regions contains tokens, so neither an error nor its cause may show a line of it.
"""

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from moxwell import yaml_documents
from moxwell.errors import Invalid

TRUE = frozenset({"1", "on", "true", "yes", "y"})
FALSE = frozenset({"", "0", "off", "false", "no", "n"})


class InvalidConfig(Invalid):
    """A configuration that cannot be used; the message names the place and the remedy."""

    reason = "InvalidConfiguration"


def read_text(path: Path) -> str:
    """The text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidConfig(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror}") from error


def parse_yaml(text: str | bytes, what: str = "configuration") -> Any:
    """The content of a YAML document; ``what`` names it in the error."""
    try:
        return yaml_documents.load(text)
    except yaml.YAMLError as error:
        raise InvalidConfig(f"{what}: not YAML{yaml_documents.line_of(error)}") from None


def parse_mapping(text: str) -> dict[str, Any]:
    """The content of a YAML document that is a mapping; an empty document is an empty one."""
    document = parse_yaml(text) or {}
    if not isinstance(document, dict):
        raise InvalidConfig("configuration: must be a mapping")
    return document


def refuse_unknown(where: str, block: Mapping[Any, Any], known: Collection[str]) -> None:
    """Raise InvalidConfig if a mapping has other keys."""
    unknown = sorted(str(key) for key in block if key not in known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        meant = f" (did you mean {near[0]}?)" if near and len(unknown) == 1 else ""
        raise InvalidConfig(
            f"{where}: unknown {', '.join(unknown)}{meant}; known are {', '.join(sorted(known))}"
        )


def parse_flag(where: str, value: object) -> bool:
    """A flag as YAML, Secrets and Go write it; nothing is false."""
    word = str("" if value is None else value).strip().lower()
    if word not in TRUE | FALSE:
        raise InvalidConfig(f"{where} must be true or false")
    return word in TRUE
