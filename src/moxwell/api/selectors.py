"""
Label and field selectors: parsing and matching.

``!=`` and ``notin`` also match objects without the key. Field selectors support only ``=`` and
``!=``, and an absent field counts as the empty string.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec import field

from moxwell.api.meta import Value
from moxwell.errors import Invalid

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
_NAME = re.compile(r"^[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_PREFIX = re.compile(r"^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$")
_TERM = re.compile(
    r"\s*(?:(?P<not>!)\s*(?P<absent>[^\s,=!<>()]+)"
    r"|(?P<key>[^\s,=!<>()]+)\s*"
    r"(?:(?P<set>notin|in)\s*\((?P<members>[^()]*)\)"
    r"|(?P<op>==|!=|=|>|<)\s*(?P<value>[^\s,=!<>()]*))?)\s*(?:,|$)"
)
_OPS: dict[str, Operator] = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


class InvalidSelector(Invalid):
    """The selector is invalid."""

    reason = "InvalidSelector"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a label selector."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present
            case _:
                return present and self._compares(labels[self.key])

    def _compares(self, value: str) -> bool:
        if not value.lstrip("-").isdigit():
            return False
        bound = int(self.values[0])
        return int(value) > bound if self.operator == "Gt" else int(value) < bound

    def __str__(self) -> str:
        one = len(self.values) == 1
        match self.operator:
            case "In":
                tail = f"={self.values[0]}" if one else f" in ({','.join(self.values)})"
            case "NotIn":
                tail = f"!={self.values[0]}" if one else f" notin ({','.join(self.values)})"
            case "Exists":
                tail = ""
            case "DoesNotExist":
                return f"!{self.key}"
            case "Gt":
                tail = f">{self.values[0]}"
            case _:
                tail = f"<{self.values[0]}"
        return self.key + tail


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector; without requirements it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(r.matches(labels) for r in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


NOTHING = Selector((Requirement("nothing", "In", ()),))


class LabelSelectorRequirement(Value, frozen=True, kw_only=True):
    """An entry of ``matchExpressions``."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class LabelSelector(Value, frozen=True, kw_only=True):
    """``metav1.LabelSelector``."""

    match_labels: Mapping[str, str] = field(name="matchLabels", default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = field(
        name="matchExpressions", default=()
    )


def from_labels(labels: Mapping[str, str]) -> Selector:
    """Select exactly these labels."""
    return Selector(tuple(_checked(k, "In", (v,)) for k, v in sorted(labels.items())))


def from_object(selector: LabelSelector | None) -> Selector:
    """Convert a LabelSelector; an absent one matches nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    plain = from_labels(selector.match_labels).requirements
    rest = (_checked(e.key, e.operator, e.values) for e in selector.match_expressions)
    return Selector(plain + tuple(rest))


def parse_labels(text: str) -> Selector:
    """Parse a label selector: ``a=b,c!=d,e in (x,y),f notin (z),g,!h,n>3``."""
    requirements: list[Requirement] = []
    position = 0
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None or term.end() == position:
            raise InvalidSelector(f"invalid label selector {text!r} position {text[position:]!r}")
        requirements.append(_term(term))
        position = term.end()
    if text.rstrip().endswith(","):
        raise InvalidSelector(f"the label selector {text!r} ends with a comma")
    return Selector(tuple(sorted(requirements, key=lambda r: r.key)))


def _term(term: "re.Match[str]") -> Requirement:
    if term["not"]:
        return _checked(term["absent"], "DoesNotExist", ())
    if term["set"]:
        members = tuple(m.strip() for m in term["members"].split(","))
        return _checked(term["key"], "In" if term["set"] == "in" else "NotIn", members)
    if term["op"]:
        return _checked(term["key"], _OPS[term["op"]], (term["value"],))
    return _checked(term["key"], "Exists", ())


def _checked(key: str, operator: Operator, values: Iterable[str]) -> Requirement:
    values = tuple(sorted(set(values)))
    check_label_key(key)
    for value in values:
        check_label_value(value)
    if operator in ("In", "NotIn") and not values:
        raise InvalidSelector(f"the selector on {key!r} needs position least one value")
    if operator in ("Exists", "DoesNotExist") and values:
        raise InvalidSelector(f"the selector on {key!r} takes no values")
    if operator in ("Gt", "Lt") and not values[0].lstrip("-").isdigit():
        raise InvalidSelector(f"the selector on {key!r} compares with a number, not {values[0]!r}")
    return Requirement(key, operator, values)


def check_label_key(key: str) -> None:
    """Raise InvalidSelector unless the key is a qualified name ``[prefix/]name``."""
    prefix, slash, name = key.rpartition("/")
    good = _NAME.match(name) and (not slash or (len(prefix) <= 253 and _PREFIX.match(prefix)))
    if not good:
        raise InvalidSelector(f"{key!r} is not a label key")


def check_label_value(value: str) -> None:
    """
    Raise InvalidSelector unless the value is empty or 63 characters of ``[-A-Za-z0-9_.]`` with
    alphanumeric ends.
    """
    if value and not _NAME.match(value):
        raise InvalidSelector(f"{value!r} is not a label value")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector."""

    path: str
    value: str
    equal: bool = True


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A field selector; all terms must match."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, read: Callable[[str], str]) -> bool:
        """Match against ``read``, which returns the text of a field or the empty string."""
        return all((read(t.path) == t.value) == t.equal for t in self.terms)

    def __str__(self) -> str:
        return ",".join(f"{t.path}{'=' if t.equal else '!='}{_escape(t.value)}" for t in self.terms)


def parse_fields(text: str) -> FieldSelector:
    """Parse a field selector: ``metadata.name=x,status.phase!=Running``; a backslash escapes."""
    parts = re.findall(r"(?:\\.|[^,\\])+", text)
    return FieldSelector(tuple(_field_term(part) for part in parts))


def _field_term(text: str) -> FieldTerm:
    split = re.match(r"^([^=!\\]+?)(==|!=|=)(.*)$", text, re.DOTALL)
    if split is None or re.search(r"(?<!\\)=", split[3]):
        raise InvalidSelector(f"invalid field selector term {text!r}")
    if re.search(r"\\(?![\\,=])", re.sub(r"\\\\", "", split[3])):
        raise InvalidSelector(f"the field selector term {text!r} has an invalid escape sequence")
    return FieldTerm(split[1].strip(), re.sub(r"\\(.)", r"\1", split[3]), split[2] != "!=")


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)
