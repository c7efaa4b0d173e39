"""``toJson`` and ``toYaml``: values as Go's encoding/json and yaml.v3 write them."""

import json
import re
from decimal import Decimal
from typing import Any

import yaml

from moxwell.bootstrap.go_templates.printing import show_float
from moxwell.bootstrap.go_templates.values import (
    Absent,
    is_struct,
    is_zero,
    pointed,
    struct_fields,
)

_HTML = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
_NUMBER = re.compile(r'"\\u0000([-+.0-9e]+)\\u0000"')
_HTML_CHARACTERS = re.compile("[<>&\u2028\u2029]")
# Strings that YAML 1.1 or 1.2 readers take for another type; yaml.v3 quotes them.
_NOT_STRINGS = re.compile(
    r"""^(?:~|null|Null|NULL|true|True|TRUE|false|False|FALSE
    |y|Y|yes|Yes|YES|on|On|ON|n|N|no|No|NO|off|Off|OFF
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|<<
    |[-+]?(?:0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)
    |[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?
    |\d{4}-\d{1,2}-\d{1,2}(?:(?:[Tt]|[ \t]+)\d{1,2}:\d{1,2}:\d{1,2}(?:\.\d*)?
       (?:[ \t]*(?:Z|[-+]\d{1,2}(?::\d{2})?))?)?)$""",
    re.VERBOSE,
)


def to_json(value: Any, *, pretty: bool = False) -> str:
    """Encode a value as JSON with sorted keys; fields of structs keep their order."""
    text = json.dumps(
        _with_json_numbers(_plain(value, "go")),
        ensure_ascii=False,
        indent=2 if pretty else None,
        separators=(",", ": ") if pretty else (",", ":"),
    )
    text = _NUMBER.sub(lambda found: found[1], text)
    return _HTML_CHARACTERS.sub(lambda found: _HTML[found[0]], text)


def to_yaml(value: Any, indent: int = 4) -> str:
    """Encode a value as YAML without the last line break."""
    text = yaml.dump(
        _plain(value, "yaml"),
        Dumper=_GoDumper,
        indent=indent,
        sort_keys=False,
        allow_unicode=True,
        width=2**31,
        default_flow_style=False,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _plain(value: Any, names: str) -> Any:
    """Convert a value to what json and yaml know; ``names`` selects the names of fields."""
    value = pointed(value)
    if isinstance(value, Absent):
        return None
    if is_struct(value):
        kept = ((m, inner) for _, m, inner in struct_fields(value) if _is_kept(m, inner, names))
        return {metadata[names]: _plain(inner, names) for metadata, inner in kept}
    if isinstance(value, dict):
        return {key: _plain(value[key], names) for key in sorted(value)}
    if isinstance(value, list | tuple):
        if not value and isinstance(value, tuple) and names == "go":
            return None
        return [_plain(item, names) for item in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _with_json_numbers(value: Any) -> Any:
    """Write floats as encoding/json does: with an exponent below 1e-6 and from 1e21 on."""
    if isinstance(value, float):
        return _json_number(value)
    if isinstance(value, dict):
        return {key: _with_json_numbers(item) for key, item in value.items()}
    return [_with_json_numbers(item) for item in value] if isinstance(value, list) else value


def _json_number(value: float) -> Any:
    if value.is_integer() and abs(value) < 1e21:
        return int(value)
    if 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
    else:
        text = re.sub(r"e-0(\d)$", r"e-\1", repr(value))
    return f"\0{text}\0"  # a string that is replaced by the number


def _is_kept(metadata: Any, value: Any, names: str) -> bool:
    if metadata["pointer"]:
        return not (names == "yaml" and metadata["omit_empty"] and isinstance(value, Absent))
    empty = is_zero(value) or (isinstance(value, list | dict) and not value)
    return not (names == "yaml" and metadata["omit_empty"] and empty)


class _GoDumper(yaml.SafeDumper):
    """PyYAML's emitter with the styles of yaml.v3: lists are indented, strings quoted as there."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        self.indents.append(self.indent)
        best = self.best_indent
        if self.indent is None:
            self.indent = best if flow else 0
        elif self.states and self.states[-1] == self.expect_block_sequence_item:
            self.indent += len("- ")
        else:
            self.indent = best * ((self.indent + best) // best)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None
    if "\n" in text:
        style = "|"
    elif not text or _NOT_STRINGS.match(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = show_float(value)
    tag = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return dumper.represent_scalar(tag, text)


_GoDumper.add_representer(str, _represent_string)
_GoDumper.add_representer(float, _represent_float)
