"""The template functions of karpenter-provider-proxmox."""

import base64
from collections.abc import Callable
from typing import Any

from moxwell.bootstrap.go_templates import encoders, network_functions, regex_functions
from moxwell.bootstrap.go_templates.builtins import builtin_functions
from moxwell.bootstrap.go_templates.errors import FunctionFailed
from moxwell.bootstrap.go_templates.printing import quoted, show
from moxwell.bootstrap.go_templates.signatures import TemplateFunction, signature
from moxwell.bootstrap.go_templates.values import Strings, is_nil, is_zero

MAX_INDENT = 1000
GO_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"  # noqa: E501


def all_functions() -> dict[str, TemplateFunction]:
    """Return Go's predefined functions and those of the provider, by name."""
    return builtin_functions() | _values() | _strings() | _rest()


def _values() -> dict[str, TemplateFunction]:
    return {
        "default": signature(_default, "any", variadic="any"),
        "coalesce": signature(
            lambda *values: next((v for v in values if not is_zero(v)), None), variadic="any"
        ),
        "ternary": signature(lambda yes, no, which: yes if which else no, "any", "any", "bool"),
        "empty": signature(is_zero, "any"),
        "toJson": signature(encoders.to_json, "any"),
        "toPrettyJson": signature(lambda value: encoders.to_json(value, pretty=True), "any"),
        "toYaml": signature(encoders.to_yaml, "any"),
        "toYamlPretty": signature(lambda value: encoders.to_yaml(value, 2), "any"),
        "get": signature(lambda found, key: found.get(key, ""), "map[string]string", "string"),
        "getValue": signature(_get_value, "string", "string"),
        "hasKey": signature(lambda found, key: key in found, "map[string]interface {}", "string"),
        "hasTag": signature(lambda tags, tag: bool(tag) and tag in tags, "[]string", "string"),
    }


def _strings() -> dict[str, TemplateFunction]:
    return {
        "indent": signature(_indent, "int", "string"),
        "nindent": signature(lambda pad, text: "\n" + _indent(pad, text), "int", "string"),
        "quote": signature(_quote, variadic="any"),
        "upper": _text(str.upper),
        "lower": _text(str.lower),
        "trim": _text(lambda text: text.strip(GO_SPACE)),
        "trimSuffix": _text(lambda suffix, text: text.removesuffix(suffix), 2),
        "trimPrefix": _text(lambda prefix, text: text.removeprefix(prefix), 2),
        "split": _text(lambda text, by: Strings(text.split(by) if by else text), 2),
        "join": signature(lambda parts, by: by.join(parts), "[]string", "string"),
        "replace": _text(lambda old, new, text: text.replace(old, new), 3),
        "contains": _text(lambda part, text: part in text, 2),
        "hasPrefix": _text(lambda prefix, text: text.startswith(prefix), 2),
        "hasSuffix": _text(lambda suffix, text: text.endswith(suffix), 2),
    }


def _rest() -> dict[str, TemplateFunction]:
    return {
        "regexFind": _text(regex_functions.find, 2),
        "regexFindString": signature(regex_functions.find_group, "string", "string", "int"),
        "regexReplaceAll": _text(regex_functions.replace_all, 3),
        "b64enc": _text(lambda text: base64.b64encode(text.encode()).decode()),
        "b64dec": _text(_decode),
        "cidrhost": signature(network_functions.cidr_host, "string", variadic="int"),
        "cidrslaac": _text(network_functions.cidr_slaac, 2),
    }


def _text(run: Callable[..., Any], parameters: int = 1) -> TemplateFunction:
    return signature(run, *("string",) * parameters)


def _default(default: Any, *given: Any) -> Any:
    if not given:
        raise FunctionFailed("a value to replace is missing")
    return default if is_zero(given[0]) else given[0]


def _quote(*values: Any) -> str:
    return " ".join(quoted(show(value)) for value in values if not is_nil(value))


def _indent(spaces: int, text: str) -> str:
    if not 0 <= spaces <= MAX_INDENT:
        raise FunctionFailed(f"indent {spaces} is not between 0 and {MAX_INDENT}")
    pad = " " * spaces
    return pad + text.replace("\n", "\n" + pad)


def _get_value(source: str, key: str) -> str:
    for part in source.split(";"):
        name, *values = part.split("=")
        if name == key:
            if not values:
                raise FunctionFailed(f"{key!r} has no value in a key=value list")
            return values[0]
    return ""


def _decode(text: str) -> str:
    compact = text.replace("\n", "").replace("\r", "")
    try:
        return base64.b64decode(compact, validate=True).decode(errors="replace")
    except ValueError as error:  # also of text that is not ASCII
        raise FunctionFailed("illegal base64 data") from error
