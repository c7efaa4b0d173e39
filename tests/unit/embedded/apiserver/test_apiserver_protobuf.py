"""Protobuf request bodies decode to the JSON of the same object."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.embedded.apiserver.builtin.model import BuiltinTypeData
from moxwell.embedded.apiserver.protobuf import MAGIC, ProtobufDecoder, varint
from moxwell.embedded.apiserver.status_errors import StatusError

DECODER = ProtobufDecoder(BuiltinTypeData())


def number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def field(at: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return number(at << 3) + number(value % 2**64)
    data = value.encode() if isinstance(value, str) else value
    return number(at << 3 | 2) + number(len(data)) + data


def body(version: str, kind: str, message: bytes) -> bytes:
    return MAGIC + field(1, field(1, version) + field(2, kind)) + field(2, message)


META = field(1, "a") + field(3, "default")


@pytest.mark.parametrize(
    "version, kind, message, found",
    [
        pytest.param(
            "v1",
            "ConfigMap",
            field(1, META) + field(2, field(1, "k") + field(2, "v")),
            {"metadata": {"name": "a", "namespace": "default"}, "data": {"k": "v"}},
            id="a map of strings",
        ),
        pytest.param(
            "v1",
            "Secret",
            field(1, META) + field(2, field(1, "k") + field(2, b"\x00\xff")),
            {"metadata": {"name": "a", "namespace": "default"}, "data": {"k": "AP8="}},
            id="bytes become base64",
        ),
        pytest.param(
            "apps/v1",
            "Deployment",
            field(1, META) + field(2, field(1, 0)),
            {"metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": 0}},
            id="a pointer to zero is a zero",
        ),
        pytest.param(
            "coordination.k8s.io/v1",
            "Lease",
            field(2, field(1, "me") + field(3, field(1, 1767225600) + field(2, 5000))),
            {"spec": {"holderIdentity": "me", "acquireTime": "2026-01-01T00:00:00.000005Z"}},
            id="a time with microseconds",
        ),
        pytest.param(
            "v1",
            "DeleteOptions",
            field(1, -1) + field(4, "Foreground"),
            {"gracePeriodSeconds": -1, "propagationPolicy": "Foreground"},
            id="a negative number",
        ),
        pytest.param(
            "v1",
            "Pod",
            field(
                2,
                field(
                    2, field(9, b"") + field(8, field(1, field(1, "cpu") + field(2, field(1, "1"))))
                ),
            ),
            {
                "spec": {
                    "containers": [{"volumeMounts": [{}], "resources": {"limits": {"cpu": "1"}}}]
                }
            },
            id="a quantity in a map",
        ),
    ],
)
def test_decoding(version: str, kind: str, message: bytes, found: object) -> None:
    decoded = DECODER.decode(body(version, kind, message))
    assert decoded == {"apiVersion": version, "kind": kind, **found}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="JSON"),
        pytest.param(MAGIC + b"\xff", id="half a number"),
        pytest.param(body("v1", "ConfigMap", field(1, META)[:-3]), id="cut off"),
        pytest.param(body("v9", "Odd", b""), id="a kind nobody knows"),
    ],
)
def test_an_invalid_message_is_rejected(data: bytes) -> None:
    with pytest.raises(StatusError) as error_response:
        DECODER.decode(data)
    assert error_response.value.code == 400


@given(st.integers(0, 2**64 - 1))
def test_numbers_round_trip(value: int) -> None:
    assert varint(number(value), 0) == (value, len(number(value)))


@given(st.sampled_from(["Pod", "Event", "Service"]), st.binary(max_size=60))
def test_arbitrary_bytes_are_decoded_or_rejected(kind: str, data: bytes) -> None:
    with contextlib.suppress(StatusError):
        DECODER.decode(body("v1", kind, data))
