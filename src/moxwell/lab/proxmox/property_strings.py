"""
Property strings: ``virtio=AA:BB..,bridge=vmbr0,firewall=1`` to values and back.

A format is ``Params`` with at most one ``default_key``; aliases and the ``keyAlias`` trick of
network models (``virtio=MAC`` means model=virtio, macaddr=MAC) are covered by ``key_alias``.
"""

from typing import Any

from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.parameter_validation import collect
from moxwell.lab.proxmox.route import Checker, Param, Params


def split(text: str, default_key: str | None) -> dict[str, str]:
    """The parts of a property string as texts, unchecked but for their form."""
    found: dict[str, str] = {}
    for part in text.split(","):
        part = part.strip()
        if not part:
            continue
        key, equals, value = part.partition("=")
        if not equals:
            if default_key is None:
                raise FormatError("value without key, but schema does not define a default key")
            key, value = default_key, part
            if key in found:
                raise FormatError("duplicate key in comma-separated list property: " + key)
        elif key in found:
            raise FormatError("duplicate key in comma-separated list property: " + key)
        found[key] = value
    return found


def default_key(params: Params) -> str | None:
    return next((name for name, param in params.items() if param.default_key), None)


def parse(
    params: Params,
    text: str,
    *,
    major: int = 8,
    key_alias: tuple[str, ...] = (),
    extra: bool = False,
) -> dict[str, Any]:
    """Checked values; ``key_alias`` = (model key, value key, *models)."""
    found = split(text, default_key(params))
    if key_alias:
        found = _spread(found, key_alias)
    for name, param in params.items():
        if param.alias and name in found:
            found[param.alias] = found.pop(name)
    values, errors = collect(params, found, major=major, extra=extra)
    if errors:
        raise FormatError("format error\n" + "".join(f"{k}: {v}\n" for k, v in errors.items()))
    return values


def _spread(found: dict[str, str], key_alias: tuple[str, ...]) -> dict[str, str]:
    model_key, value_key, *models = key_alias
    spread: dict[str, str] = {}
    for key, value in found.items():
        if key in models:
            spread[model_key], spread[value_key] = key, value
        elif key == model_key and value in models:
            spread[model_key] = value
        else:
            spread[key] = value
    return spread


def join(params: Params, values: dict[str, Any], first: str | None = None) -> str:
    """A property string: the default key first and bare, the others sorted by name."""
    lead = first or default_key(params)
    parts = [str(values[lead])] if lead and lead in values else []
    parts += [f"{name}={values[name]}" for name in sorted(values) if name != lead]
    return ",".join(parts)


def checker(params: Params, **options: Any) -> Checker:
    """A format checker for one property string format."""

    def check(text: str) -> dict[str, Any]:
        return parse(params, text, **options)

    return check


__all__ = ["Param", "checker", "default_key", "join", "parse", "split"]
