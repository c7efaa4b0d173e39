"""
Property strings: parses and writes ``virtio=AA:BB:..,bridge=vmbr0`` as PVE::JSONSchema does.

A :class:`PropertyFormat` is the schema. Parsed values stay strings (booleans become "0" or "1"),
because PVE stores what was sent: ``mbps_wr=20.5`` is returned as "20.5". With ``key_alias``,
``virtio=MAC`` sets model=virtio and macaddr=MAC, and is written back in the same form.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from moxwell.lab.proxmox import parameter_validation
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Param

Values = dict[str, str]
_PAIR = re.compile(r"([^=]+)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PropertyFormat:
    """The keys of one property string format."""

    params: Mapping[str, Param]
    key_alias: tuple[str, str] | None = None  # (key that gets the name, key that gets the value)
    models: frozenset[str] = frozenset()  # the names that key_alias accepts
    after: Callable[[Values], None] | None = None  # a check across keys; raises FormatError
    default_key: str | None = field(init=False)

    def __post_init__(self) -> None:
        found = next((name for name, param in self.params.items() if param.default_key), None)
        object.__setattr__(self, "default_key", found)


def parse(schema: PropertyFormat, text: str, path: str, *, major: int = 8) -> Values:
    """Parse and check a property string; ``path`` is the option name in error messages."""
    found = _split(schema, text)
    errors = _errors(schema, found, path, major)
    if errors:
        lines = "".join(f"{key}: {text}\n" for key, text in errors.items())
        raise FormatError("format error\n" + lines)
    if schema.after is not None:
        schema.after(found)
    return found


def split(text: str, default_key: str | None) -> Values:
    """Split a property string without checking keys and values."""
    found: Values = {}
    for key, value, _ in _parts(text, default_key):
        if key in found:
            raise FormatError(_duplicate_key(key))
        found[key] = value
    return found


def _parts(text: str, default_key: str | None) -> Iterator[tuple[str, str, bool]]:
    """Key, value, and whether the value was bare (without its key)."""
    for part in text.split(","):
        if not part.strip():
            continue
        pair = _PAIR.fullmatch(part)
        if pair is not None:
            yield pair[1], pair[2], False
        elif "=" in part:
            raise FormatError("missing key in comma-separated list property\n")
        elif default_key is None:
            raise FormatError("value without key, but schema does not define a default key\n")
        else:
            yield default_key, part, True


def _split(schema: PropertyFormat, text: str) -> Values:
    found: Values = {}
    for key, value, bare in _parts(text, schema.default_key):
        if not bare:
            _put(schema, found, key, value)
        elif key in found:
            raise FormatError(_duplicate_key(key))
        else:
            found[key] = value
    return found


def _duplicate_key(key: str) -> str:
    return f"duplicate key in comma-separated list property: {key}\n"


def _put(schema: PropertyFormat, found: Values, key: str, value: str) -> None:
    if key in found:
        raise FormatError(_duplicate_key(key))
    if schema.key_alias is not None and key in schema.models:
        if schema.key_alias[0] in found:
            raise FormatError(f"key alias '{schema.key_alias[0]}' is already defined\n")
        found[schema.key_alias[0]] = key
        key = schema.key_alias[1]
    param = schema.params.get(key)
    if param is not None and param.alias is not None:
        key, param = param.alias, schema.params.get(param.alias)
    if param is not None and param.type == "boolean":
        value = {
            **dict.fromkeys(parameter_validation.TRUE, "1"),
            **dict.fromkeys(parameter_validation.FALSE, "0"),
        }.get(value.lower(), value)
    found[key] = value


def _errors(schema: PropertyFormat, found: Values, path: str, major: int) -> dict[str, str]:
    errors: dict[str, str] = {}
    for key, value in found.items():
        param = parameter_validation.known(schema.params.get(key), major)
        if param is None:
            errors[f"{path}.{key}"] = parameter_validation.UNKNOWN
            continue
        try:
            parameter_validation.coerce(param, value, f"{path}.{key}", major)
        except FormatError as problem:
            errors[f"{path}.{key}"] = str(problem)
        if param.requires is not None and param.requires not in found:
            errors[f"{path}.{param.requires}"] = parameter_validation.requirement(
                f"{path}.{key}", major
            )
    for key, param in schema.params.items():
        if not param.optional and param.alias is None and key not in found:
            errors[f"{path}.{key}"] = parameter_validation.MISSING
    return errors


def write(schema: PropertyFormat, values: Values) -> str:
    """
    Write a property string: the default key first and bare, then required keys, then the others.
    """
    rest = dict(values)
    parts = []
    if schema.key_alias is not None and schema.key_alias[1] in rest:
        name = rest.pop(schema.key_alias[0])
        parts.append(f"{name}={rest.pop(schema.key_alias[1])}")
    elif schema.default_key is not None and schema.default_key in rest:
        parts.append(rest.pop(schema.default_key))
    needed = {key for key in rest if key in schema.params and not schema.params[key].optional}
    for key in sorted(rest, key=lambda key: (key not in needed, key)):
        parts.append(f"{key}={rest[key]}")
    return ",".join(parts)


def checker(schema: PropertyFormat, path: str) -> Callable[[str], None]:
    """A format function for one option."""

    def check(text: str) -> None:
        parse(schema, text, path)

    return check
