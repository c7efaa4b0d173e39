"""Reads and writes the YAML documents of Talos machine configurations and their patches. Pure."""

from collections.abc import Sequence
from typing import Any

import yaml

from moxwell import yaml_documents
from moxwell.errors import Invalid

Json = dict[str, Any]


def parse(text: str | bytes, what: str) -> list[Json]:
    """The documents; ``what`` begins the sentence of an error, which contains no text of them."""
    try:
        found = [document for document in yaml_documents.load_all(text) if document is not None]
    except yaml.YAMLError as error:  # without the cause: its text would contain keys
        raise Invalid(f"{what} is not YAML{yaml_documents.line_of(error)}") from None
    if not all(isinstance(document, dict) for document in found):
        raise Invalid(f"{what} is not a YAML mapping")
    return found


def as_text(documents: Sequence[Json]) -> str:
    text: str = yaml.dump_all(documents, Dumper=yaml.CSafeDumper, sort_keys=False)
    return text
