"""Parameter validation and route lookup."""

from typing import Any

import pytest

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.property_strings import PropertyFormat, parse, split, write
from moxwell.lab.proxmox.errors import FormatError, PveException
from moxwell.lab.proxmox.parameter_validation import coerce, verify
from moxwell.lab.proxmox.route import ApiRoute, Param, RouteTable, find_param

VMID = Param("integer", optional=False, minimum=100, maximum=999999999, format=formats.vmid)


@pytest.mark.parametrize(
    "param, raw, text",
    [
        pytest.param(Param("integer"), "x", "type check ('integer') failed - got 'x'", id="word"),
        pytest.param(Param("integer", minimum=0), "-1", "value must have a minimum value of 0",
                     id="too small"),
        pytest.param(Param("integer", maximum=9), "10", "value must have a maximum value of 9",
                     id="too large"),
        pytest.param(Param("number"), "1,5", "type check ('number') failed - got '1,5'",
                     id="comma in a number"),
        pytest.param(Param("boolean"), "maybe", "type check ('boolean') failed - got 'maybe'",
                     id="neither yes nor no"),
        pytest.param(Param(enum=("a", "b")), "c",
                     "value 'c' does not have a value in the enumeration 'a, b'", id="not listed"),
        pytest.param(Param(pattern="[a-z]+"), "A1", "value does not match the regex pattern",
                     id="other pattern"),
        pytest.param(Param(max_length=2), "abc", "value may only be 2 characters long", id="long"),
        pytest.param(Param(min_length=8), "short1", "value must be at least 8 characters long",
                     id="short"),
        pytest.param(VMID, "99", "invalid format - value does not look like a valid VM ID\n",
                     id="format comes before the range"),
    ],
)  # fmt: skip
def test_error_messages(param: Param, raw: str, text: str) -> None:
    with pytest.raises(FormatError) as caught:
        coerce(param, raw)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "param, raw, value",
    [
        pytest.param(Param("boolean"), "yes", 1, id="yes is 1"),
        pytest.param(Param("boolean"), False, 0, id="JSON false is 0"),
        pytest.param(Param("integer"), "+7", 7, id="signs are fine"),
        pytest.param(Param("integer"), 7, 7, id="JSON numbers are fine"),
    ],
)
def test_values_are_converted(param: Param, raw: Any, value: Any) -> None:
    assert coerce(param, raw) == value


def test_all_errors_are_reported() -> None:
    params = {"a": Param(optional=False), "b": Param("integer"), "c": Param(requires="d")}
    with pytest.raises(PveException) as caught:
        verify(params, {"b": "x", "c": "1", "e": "1"}, major=8)
    assert set(caught.value.errors or {}) == {"a", "b", "d", "e"}


@pytest.mark.parametrize(
    "major, text",
    [
        pytest.param(8, "missing property - 'c' requires this property", id="8"),
        pytest.param(9, "missing property required by 'c'", id="9"),
    ],
)
def test_a_required_companion_is_named_in_each_versions_way(major: int, text: str) -> None:
    with pytest.raises(PveException) as caught:
        verify({"c": Param(requires="d")}, {"c": "1"}, major=major)
    assert caught.value.errors == {"d": text}


def test_parameters_of_the_other_version_are_unknown() -> None:
    params = {"new": Param(version=9), "old": Param(until=8)}
    assert verify(params, {"old": "1"}, major=8) == {"old": "1"}
    assert verify(params, {"new": "1"}, major=9) == {"new": "1"}
    with pytest.raises(PveException):
        verify(params, {"new": "1"}, major=8)


def test_a_single_item_is_an_array() -> None:
    assert verify({"a": Param("array")}, {"a": "one"}, major=9) == {"a": ["one"]}


def test_errors_of_array_items_name_the_item() -> None:
    params = {"a": Param("array", items=Param("integer"))}
    with pytest.raises(PveException) as caught:
        verify(params, {"a": ["1", "x"]}, major=9)
    assert caught.value.errors == {"a[1]": "type check ('integer') failed - got 'x'"}


@pytest.mark.parametrize(
    "name, known",
    [
        pytest.param("net0", True, id="first"),
        pytest.param("net31", True, id="last"),
        pytest.param("net32", False, id="beyond"),
        pytest.param("net01", False, id="leading zero"),
        pytest.param("net", False, id="no number"),
    ],
)
def test_indexed_parameters(name: str, known: bool) -> None:
    assert (find_param({"net[n]": Param(count=32)}, name) is not None) is known


def handler(call: Any) -> None:
    return None


def test_route_precedence() -> None:
    table = RouteTable(
        [
            ApiRoute("GET", "/a/{x}", handler),
            ApiRoute("GET", "/a/b", handler),
            ApiRoute("GET", "/v/{x}/{rest}", handler, deep=True),
        ]
    )
    assert table.find("GET", ["a", "b"]) is not None
    found = table.find("GET", ["a", "b"])
    assert found is not None
    assert found[0].path == "/a/b"
    deep = table.find("GET", ["v", "s", "local:100", "vm.raw"])
    assert deep is not None
    assert deep[1] == {"x": "s", "rest": "local:100/vm.raw"}
    assert table.find("POST", ["a", "b"]) is None


def test_a_property_string_is_parsed_and_written() -> None:
    params = {"file": Param(default_key=True, optional=False), "size": Param(), "ssd": Param()}
    schema = PropertyFormat(params)
    values = parse(schema, "local:1,ssd=1,size=4G", "scsi0")
    assert values == {"file": "local:1", "ssd": "1", "size": "4G"}
    assert write(schema, values) == "local:1,size=4G,ssd=1"
    with pytest.raises(FormatError, match="format error"):
        parse(schema, "local:1,nope=1", "scsi0")


@pytest.mark.parametrize(
    "text, default_key, expected",
    [
        pytest.param("lower=100,upper=200", None, {"lower": "100", "upper": "200"}, id="keys"),
        pytest.param("secure,network=10.0.0.0/8", "type",
                     {"type": "secure", "network": "10.0.0.0/8"}, id="default key"),
        pytest.param("secure", None, "value without key", id="no default key"),
        pytest.param("a=1,a=2", None, "duplicate key .*: a", id="duplicate key"),
        pytest.param("=1", None, "missing key", id="missing key"),
    ],
)  # fmt: skip
def test_a_property_string_is_split(text: str, default_key: str | None, expected: Any) -> None:
    if isinstance(expected, dict):
        assert split(text, default_key) == expected
        return
    with pytest.raises(FormatError, match=expected):
        split(text, default_key)
