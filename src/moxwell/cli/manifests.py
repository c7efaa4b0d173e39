"""Manifests from files: YAML or JSON, several documents, ``-`` for standard input."""

import sys
from pathlib import Path
from typing import Any

import yaml

from moxwell.errors import Invalid, Missing

Json = dict[str, Any]


class BadManifest(Invalid):
    """A file that holds no manifests."""

    reason = "InvalidManifest"


def read(files: list[Path]) -> list[Json]:
    """Every object of the files, in order."""
    return [doc for file in files for doc in parse(_text(file), str(file))]


def _text(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise Missing(f"there is no file {file}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadManifest(f"cannot read {file}: {type(error).__name__}") from error


def parse(text: str, name: str) -> list[Json]:
    """Every object of a text; a List is its items."""
    try:
        found = [doc for doc in yaml.safe_load_all(text) if doc is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        said = getattr(error, "problem", "") or "not YAML"
        raise BadManifest(f"{name} is not YAML{place}: {said}") from error
    objects: list[Json] = []
    for number, doc in enumerate(found, 1):
        objects += _objects(doc, f"{name}, document {number}")
    if not objects:
        raise BadManifest(f"{name} holds no objects")
    return objects


def _objects(doc: Any, where: str) -> list[Json]:
    if not isinstance(doc, dict):
        raise BadManifest(f"{where}: an object is a mapping with apiVersion, kind and metadata")
    if str(doc.get("kind", "")) == "List" and isinstance(doc.get("items"), list):
        return [obj for item in doc["items"] for obj in _objects(item, where)]
    for key in ("apiVersion", "kind"):
        if not isinstance(doc.get(key), str):
            raise BadManifest(f"{where}: {key} is missing")
    meta = doc.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str):
        raise BadManifest(f"{where}: metadata.name is missing")
    return [doc]
