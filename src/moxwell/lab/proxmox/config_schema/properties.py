"""
Property strings: ``virtio=AA:BB:..,bridge=vmbr0`` to texts and back, as PVE reads and writes them.

A :class:`Form` is the schema. Parsed values stay texts (booleans become "0" or "1"), because PVE
stores what was sent: ``mbps_wr=20.5`` comes back as "20.5". The surprising part is ``key_alias``:
``virtio=MAC`` means model=virtio and macaddr=MAC, and is written that way too.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moxwell.lab.proxmox import parameter_validation
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Param

Values = dict[str, str]
_PAIR = re.compile(r"([^=]+)=(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Form:
    """The keys of one kind of property string."""

    params: Mapping[str, Param]
    key_alias: tuple[str, str] | None = None  # (key that takes the name, key that takes the value)
    models: frozenset[str] = frozenset()  # the names that may stand for key_alias
    after: Callable[[Values], None] | None = None  # a rule over several keys; raises FormatError
    default_key: str | None = field(init=False)

    def __post_init__(self) -> None:
        found = next((name for name, param in self.params.items() if param.default_key), None)
        object.__setattr__(self, "default_key", found)


def parse(form: Form, text: str, path: str, *, major: int = 8) -> Values:
    """The checked values of one string; ``path`` is the option's name, for the error texts."""
    found = _split(form, text)
    errors = _errors(form, found, path, major)
    if errors:
        lines = "".join(f"{key}: {text}\n" for key, text in errors.items())
        raise FormatError("format error\n" + lines)
    if form.after is not None:
        form.after(found)
    return found


def _split(form: Form, text: str) -> Values:
    found: Values = {}
    bare = False
    for part in text.split(","):
        if not part.strip():
            continue
        pair = _PAIR.fullmatch(part)
        if pair is not None:
            _put(form, found, pair[1], pair[2])
        elif "=" in part:
            raise FormatError("missing key in comma-separated list property\n")
        elif form.default_key is None:
            raise FormatError("value without key, but schema does not define a default key\n")
        elif bare or form.default_key in found:
            raise FormatError(_twice(form.default_key))
        else:
            found[form.default_key], bare = part, True
    return found


def _twice(key: str) -> str:
    return f"duplicate key in comma-separated list property: {key}\n"


def _put(form: Form, found: Values, key: str, value: str) -> None:
    if key in found:
        raise FormatError(_twice(key))
    if form.key_alias is not None and key in form.models:
        if form.key_alias[0] in found:
            raise FormatError(f"key alias '{form.key_alias[0]}' is already defined\n")
        found[form.key_alias[0]] = key
        key = form.key_alias[1]
    param = form.params.get(key)
    if param is not None and param.alias is not None:
        key, param = param.alias, form.params.get(param.alias)
    if param is not None and param.type == "boolean":
        value = {
            **dict.fromkeys(parameter_validation.TRUE, "1"),
            **dict.fromkeys(parameter_validation.FALSE, "0"),
        }.get(value.lower(), value)
    found[key] = value


def _errors(form: Form, found: Values, path: str, major: int) -> dict[str, str]:
    errors: dict[str, str] = {}
    for key, value in found.items():
        param = parameter_validation.known(form.params.get(key), major)
        if param is None:
            errors[f"{path}.{key}"] = parameter_validation.UNKNOWN
            continue
        try:
            parameter_validation.coerce(param, value)
        except FormatError as problem:
            errors[f"{path}.{key}"] = str(problem)
        if param.requires is not None and param.requires not in found:
            errors[f"{path}.{param.requires}"] = parameter_validation.requirement(
                f"{path}.{key}", major
            )
    for key, param in form.params.items():
        if not param.optional and param.alias is None and key not in found:
            errors[f"{path}.{key}"] = parameter_validation.MISSING
    return errors


def write(form: Form, values: Values) -> str:
    """One string: the default key bare and first, then required keys, then the others."""
    rest = dict(values)
    parts = []
    if form.key_alias is not None and form.key_alias[1] in rest:
        name = rest.pop(form.key_alias[0])
        parts.append(f"{name}={rest.pop(form.key_alias[1])}")
    elif form.default_key is not None and form.default_key in rest:
        parts.append(rest.pop(form.default_key))
    needed = {key for key in rest if key in form.params and not form.params[key].optional}
    for key in sorted(rest, key=lambda key: (key not in needed, key)):
        parts.append(f"{key}={rest[key]}")
    return ",".join(parts)


def checker(form: Form, path: str) -> Callable[[str], None]:
    """A format function for one option."""

    def check(text: str) -> None:
        parse(form, text, path)

    return check
