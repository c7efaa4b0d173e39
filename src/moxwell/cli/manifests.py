"""Reads manifests from files: YAML or JSON, several documents; ``-`` is standard input."""

import sys
from pathlib import Path
from typing import Any

import yaml

from moxwell import yaml_documents
from moxwell.api import registry
from moxwell.api.field_errors import FieldError, InvalidFields
from moxwell.errors import Invalid, Missing

Json = dict[str, Any]
MAX_VALUES = 5_000_000  # of all documents; an export of everything has many


class InvalidManifest(Invalid):
    """A file without valid manifests."""

    reason = "InvalidManifest"


def read(files: list[Path]) -> list[Json]:
    """Every object of the files, in order."""
    return [doc for file in files for doc in parse(read_text(file), str(file))]


def in_order(documents: list[Json]) -> list[Json]:
    """The same objects; those that others need come first: CRDs, namespaces, tenants."""
    first = ("CustomResourceDefinition", "Namespace", "Tenant")
    ranks = {kind: number for number, kind in enumerate(first)}
    return sorted(documents, key=lambda doc: ranks.get(doc["kind"], len(first)))


def check_fields(documents: list[Json]) -> None:
    """Refuse fields that do not exist before anything is sent, and name the nearest one."""
    for doc in documents:
        if errors := registry.field_errors(doc):
            head = f"{doc['kind']} {doc['metadata']['name']}"
            raise InvalidFields(FieldError("", f"{head}: {error}") for error in errors)


def read_text(file: Path) -> str:
    """The text of a file, or of standard input."""
    name = "standard input" if str(file) == "-" else str(file)
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        return data.decode("utf-8")
    except FileNotFoundError as error:
        raise Missing(f"there is no file {file}") from error
    except IsADirectoryError as error:
        raise InvalidManifest(f"{file} is a directory: name a file of it") from error
    except OSError as error:
        raise InvalidManifest(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidManifest(f"{name} is not text in UTF-8") from error


def parse(text: str, name: str) -> list[Json]:
    """Every object of a text; a List is its items."""
    try:
        found = [d for d in yaml_documents.load_all(text, MAX_VALUES) if d is not None]
    except yaml.YAMLError as error:
        raise InvalidManifest(f"{name} is not YAML{yaml_documents.problem_of(error)}") from error
    objects: list[Json] = []
    for number, doc in enumerate(found, 1):
        objects += _objects(doc, f"{name}, document {number}")
    if not objects:
        raise InvalidManifest(f"{name} contains no objects")
    return objects


def _objects(doc: Any, where: str) -> list[Json]:
    if not isinstance(doc, dict):
        raise InvalidManifest(
            f"{where}: an object must be a mapping with apiVersion, kind and metadata"
        )
    if str(doc.get("kind", "")) == "List" and isinstance(doc.get("items"), list):
        return [obj for item in doc["items"] for obj in _objects(item, where)]
    for key in ("apiVersion", "kind"):
        if not isinstance(doc.get(key), str):
            raise InvalidManifest(f"{where}: {key} is missing")
    meta = doc.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise InvalidManifest(f"{where}: metadata.name is missing")
    return [doc]
