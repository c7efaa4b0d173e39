"""
Generate the tables of built-in kinds in ``src/moxwell/embedded/apiserver/data``.

``types.json.gz`` is the output of ``main.go`` (struct tags of k8s.io/api); ``openapi.json.gz``
contains the schemas of the same kinds that kube-apiserver serves at ``/openapi/v3`` (the one that
``make envtest`` installs). Both are Apache-2.0. Run, with Go on the path: ``PYTHONPATH=tools python
tools/kubernetes_tables/tables.py``.
"""

import gzip
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envtest.control_plane import ControlPlane

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "src" / "moxwell" / "embedded" / "apiserver" / "data"


def definition(go_name: str) -> str:
    """The OpenAPI name of ``k8s.io/api/apps/v1.Deployment``."""
    package, _, name = go_name.rpartition(".")
    host, _, rest = package.partition("/")
    return ".".join([*reversed(host.split(".")), *rest.split("/"), name])


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(ref := node.get("$ref"), str):
            yield ref.rsplit("/", 1)[-1]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def reach(roots: list[str], schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while roots:
        name = roots.pop()
        if name in schemas and name not in found:
            found[name] = schemas[name]
            roots += references(schemas[name])
    return dict(sorted(found.items()))


def write(name: str, value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    (DATA / name).write_bytes(gzip.compress(text, 9, mtime=0))


def served() -> dict[str, Any]:
    """Every schema that a new kube-apiserver serves."""
    schemas: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        plane.start()
        _, index = plane.request("GET", "/openapi/v3")
        for found in index["paths"].values():
            _, document = plane.request("GET", found["serverRelativeURL"])
            schemas.update(document.get("components", {}).get("schemas", {}))
    return schemas


def main() -> None:
    DATA.mkdir(exist_ok=True)
    types = json.loads(subprocess.check_output(["go", "run", "."], cwd=HERE))
    names = [definition(name) for name in types]
    write("types.json.gz", types)
    write("openapi.json.gz", reach(names + [f"{name}List" for name in names], served()))


if __name__ == "__main__":
    main()
