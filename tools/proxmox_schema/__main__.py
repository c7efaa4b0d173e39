"""
Writes ``src/moxwell/lab/proxmox/schema/methods.json`` from the API schemas of Proxmox VE.

Run: ``PYTHONPATH=tools python -m proxmox_schema api-8.4.json api-9.1.json``. The schemas are not
part of the repository. The table keeps what decides whether a request is accepted: names, types,
limits, patterns and formats of the parameters, permissions, and whether an API token may call.
"""

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[2] / "src/moxwell/lab/proxmox/schema/methods.json"
_FACTS = (
    *("type", "optional", "minimum", "maximum", "minLength", "maxLength", "enum", "pattern"),
    *("format", "requires", "items", "alias", "keyAlias", "default_key"),
    *("instance-types", "type-property", "oneOf"),
)


def param_facts(param: dict[str, Any]) -> dict[str, Any]:
    """The facts of one parameter, without defaults and descriptions."""
    facts = {key: param[key] for key in _FACTS if param.get(key) is not None}
    if facts.get("type") == "string":
        del facts["type"]
    if not int(facts.get("optional", 0)):
        facts.pop("optional", None)
    for key in ("minimum", "maximum"):
        if isinstance(facts.get(key), str):
            facts[key] = float(facts[key])
    if isinstance(facts.get("format"), dict):
        facts["format"] = {k: param_facts(v) for k, v in facts["format"].items()}
    if "items" in facts:
        facts["items"] = param_facts(facts["items"])
    if "oneOf" in facts:
        facts["oneOf"] = [param_facts(one) for one in facts["oneOf"]]
    return facts


def _index_key(method: dict[str, Any]) -> str | None:
    """The key under which an index lists the names below it."""
    returns = method["returns"]
    for link in returns.get("links", ()):
        if link.get("rel") == "child":
            return str(link["href"]).strip("{}")
    return None


class FactTable:
    """Collects the methods of all versions; equal parameters are stored once."""

    def __init__(self) -> None:
        self.specs: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}

    def number(self, param: dict[str, Any]) -> int:
        """The number of a parameter's facts in ``specs``."""
        facts = param_facts(param)
        text = json.dumps(facts, sort_keys=True)
        if text not in self._numbers:
            self._numbers[text] = len(self.specs)
            self.specs.append(facts)
        return self._numbers[text]

    def method(self, method: dict[str, Any]) -> dict[str, Any]:
        """The facts of one method."""
        facts: dict[str, Any] = {}
        if method["parameters"]:
            facts["params"] = {n: self.number(p) for n, p in sorted(method["parameters"].items())}
        if "permissions" in method:
            facts["permissions"] = method["permissions"]
        if not method["allowtoken"]:
            facts["tokens"] = 0
        if method.get("additionalProperties", 0) == 1:
            facts["extra"] = 1
        if method.get("proxyto"):
            facts["proxyto"] = method["proxyto"]
        key = _index_key(method)
        return facts | ({"index": key} if key else {})

    def version(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The methods of one version by path."""
        return {
            path: {name: self.method(methods[name]) for name in sorted(methods)}
            for path, methods in sorted(schema["api"].items())
        }


def build(schemas: dict[str, dict[str, Any]]) -> str:
    """The text of the table; the keys of ``schemas`` are major versions."""
    table = FactTable()
    versions = {major: table.version(schema) for major, schema in schemas.items()}
    rows = [json.dumps(spec, separators=(",", ":")) for spec in table.specs]
    parts = ['{"specs":[', ",\n".join(rows), "]"]
    for major, paths in versions.items():
        lines = [
            f"{json.dumps(path)}:{json.dumps(methods, separators=(',', ':'))}"
            for path, methods in paths.items()
        ]
        parts += [f',\n"{major}":{{', ",\n".join(lines), "}"]
    return "\n".join(parts) + "}\n"


def read(files: list[str]) -> dict[str, dict[str, Any]]:
    """The schemas by major version."""
    schemas = [json.loads(Path(file).read_text()) for file in files]
    return {schema["pve"].partition(".")[0]: schema for schema in schemas}


if __name__ == "__main__":
    TARGET.write_text(build(read(sys.argv[1:])))
