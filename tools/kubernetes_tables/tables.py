"""
Makes the tables of built-in kinds in ``src/moxwell/store/data`` from the Go modules of Kubernetes.

``types.json.gz`` is what ``main.go`` beside this file prints (struct tags of k8s.io/api); ``openapi.json.gz``
holds the schemas of the same kinds out of ``api/openapi-spec/v3`` of k8s.io/kubernetes. Both modules are
Apache-2.0 and come from the Go module registry. Usage: ``python tables.py`` with Go on the path.
"""

import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "src" / "moxwell" / "store" / "data"
KUBERNETES = "k8s.io/kubernetes@v1.36.3"


def definition(go_name: str) -> str:
    """``k8s.io/api/apps/v1.Deployment`` as OpenAPI names it."""
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


def main() -> None:
    DATA.mkdir(exist_ok=True)
    types = json.loads(subprocess.check_output(["go", "run", "."], cwd=HERE))
    module = json.loads(subprocess.check_output(["go", "mod", "download", "-json", KUBERNETES]))
    schemas: dict[str, Any] = {}
    for path in sorted(Path(module["Dir"], "api", "openapi-spec", "v3").glob("*_openapi.json")):
        schemas.update(json.loads(path.read_text()).get("components", {}).get("schemas", {}))
    names = [definition(name) for name in types]
    write("types.json.gz", types)
    write("openapi.json.gz", reach(names + [f"{name}List" for name in names], schemas))


if __name__ == "__main__":
    main()
