"""
Writes the names and types of the fields of Cluster API's and Kamaji's kinds into ``moxwell.api``.

Run: ``python tools/upstream_fields.py``. It reads the CRDs of the Go modules below, several
versions of a module one after the other: a field that any of them has is known. Of a schema it
keeps names and types only, in the form that :mod:`moxwell.api.upstream_fields` describes.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from moxwell.api import registry, upstream_fields

Json = Mapping[str, Any]
CLUSTER_API = "sigs.k8s.io/cluster-api"
MODULES = (
    f"{CLUSTER_API}@v1.13.6",
    f"{CLUSTER_API}@v1.14.2",
    "sigs.k8s.io/cluster-api-ipam-provider-in-cluster@v1.1.0",
    "github.com/clastix/kamaji@v1.0.0",
    "github.com/clastix/cluster-api-control-plane-provider-kamaji@v0.20.0",
)
LEFT_OUT = frozenset({"apiVersion", "kind", "metadata", "status"})


def definitions(folder: Path) -> Iterator[Json]:
    """Every CRD below a folder."""
    for file in sorted(folder.glob("**/crd*/**/*.yaml")):
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            tree = document if isinstance(document, dict) else {}
            if tree.get("kind") == "CustomResourceDefinition" and "versions" in tree.get(
                "spec", {}
            ):
                yield tree


def kinds_of(definition: Json) -> Iterator[tuple[str, Any]]:
    """The versions of a kind that Moxwell has, each with its fields."""
    spec = definition["spec"]
    for version in spec["versions"]:
        name = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
        if name in _names():
            tree = field_types(version["schema"]["openAPIV3Schema"])
            yield name, {field: of for field, of in tree.items() if field not in LEFT_OUT}


def field_types(schema: Json) -> Any:
    """A structural schema without everything but names and types."""
    if schema.get("x-kubernetes-int-or-string"):
        return upstream_fields.INT_OR_STRING
    if "properties" in schema:
        return {name: field_types(of) for name, of in schema["properties"].items()}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return upstream_fields.ANY
    if "additionalProperties" in schema:
        return {upstream_fields.ITEMS: field_types(schema["additionalProperties"])}
    return [field_types(schema["items"])] if "items" in schema else schema["type"]


def union(one: Any, other: Any) -> Any:
    """The fields of both; the types of the second."""
    if isinstance(one, dict) and isinstance(other, dict):
        shared = {name: union(one[name], other[name]) for name in one.keys() & other.keys()}
        return dict(sorted({**one, **other, **shared}.items()))
    if isinstance(one, list) and isinstance(other, list):
        return [union(one[0], other[0])]
    return other


def _names() -> frozenset[str]:
    return frozenset(upstream_fields.name_of(kind) for kind in registry.UPSTREAM)


def _download(module: str) -> Path:
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"])


def main() -> None:
    """Write the table, one kind per line."""
    found: dict[str, Any] = {}
    for module in MODULES:
        for definition in definitions(_download(module)):
            for name, fields in kinds_of(definition):
                found[name] = union(found.get(name, {}), fields)
    lines = (f"{json.dumps(name)}:{_compact(found[name])}" for name in sorted(found))
    upstream_fields.FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _compact(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"))


if __name__ == "__main__":
    main()
