"""The server name of a ClientHello: genuine ones, split ones, and hostile bytes."""

import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.config_file import InvalidConfig
from moxwell.embedded.controlplanes.addresses import LOOPBACK, TenantAddresses, parse
from moxwell.embedded.controlplanes.sni.client_hello import (
    MAX_BYTES,
    InvalidClientHello,
    server_name,
)


def hello(name: str | None) -> bytes:
    """The first bytes that a genuine client sends."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = hello("Demo.default.k8s.example")


def split(data: bytes, size: int) -> bytes:
    """The same message in records of at most ``size`` bytes."""
    body = data[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(data[:3] + len(part).to_bytes(2) + part for part in parts)


def test_the_name_of_a_genuine_client_is_read_from_its_last_byte_on() -> None:
    assert {server_name(HELLO[:n]) for n in range(len(HELLO))} == {None}
    assert server_name(HELLO) == "demo.default.k8s.example"
    assert server_name(HELLO + b"more") == "demo.default.k8s.example"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_message_may_be_split_over_records(size: int) -> None:
    assert server_name(split(HELLO, size)) == "demo.default.k8s.example"


def without(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


REFUSED = [
    pytest.param(hello(None), "names no server", id="no name"),
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", "not TLS", id="HTTP"),
    pytest.param(without(HELLO, 0, 23), "not TLS", id="application data"),
    pytest.param(without(HELLO, 1, 2), "not TLS", id="SSL 2"),
    pytest.param(without(HELLO, 5, 2), "not a ClientHello", id="a server's message"),
    pytest.param(b"\x16\x03\x01\x00\x00", "length of a record", id="empty record"),
    pytest.param(b"\x16\x03\x01\xff\xff", "length of a record", id="huge record"),
    pytest.param(b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "too long", id="huge message"),
    pytest.param(b"\x16\x03\x01\x40\x00" + b"\x01\x00\x3f\xf0" + bytes(MAX_BYTES), ".", id="zeros"),
    pytest.param(
        split(b"\x16\x03\x01\x00\x00\x01\x00\x3f\xff" + bytes(4000), 1), ".", id="dribble"
    ),
]


@pytest.mark.parametrize("data, message", REFUSED)
def test_what_is_no_client_hello_with_a_name_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidClientHello, match=message):
        server_name(data)


@given(st.binary(max_size=600))
def test_arbitrary_bytes_are_a_name_or_refused_or_incomplete(data: bytes) -> None:
    for text in (data, b"\x16\x03\x01" + data, b"\x16\x03\x01\x02\x00\x01\x00\x01\xf0" + data):
        try:
            name = server_name(text)
        except InvalidClientHello:
            continue
        assert name is None or 0 < len(name) <= 253


@given(st.integers(0, len(HELLO) - 1), st.integers(0, 255), st.integers(0, len(HELLO)))
def test_a_damaged_hello_never_fails_otherwise(at: int, value: int, cut: int) -> None:
    try:
        name = server_name(without(HELLO, at, value)[:cut])
    except InvalidClientHello:
        return
    assert name is None or set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")


def test_with_names_the_control_planes_listen_on_loopback(tmp_path: Path) -> None:
    found = parse(
        "control_planes: {address: 192.0.2.5, sni: {domain: K8s.example.org., port: 443}}"
    )
    assert found.sni is not None
    assert (found.sni.domain, found.sni.port) == ("k8s.example.org", 443)
    assert not found.is_local()
    assert TenantAddresses(found, ()).host(tmp_path / "a") == LOOPBACK


@pytest.mark.parametrize(
    "section, message",
    [
        ("{sni: 6443}", "mapping"),
        ("{sni: {}}", "DNS name"),
        ("{sni: {domain: a..b}}", "DNS name"),
        ("{sni: {domain: 'a b'}}", "DNS name"),
        ("{sni: {domain: a, port: 0}}", "must be a port"),
        ("{sni: {domain: a, host: b}}", "unknown host"),
        ("{addresses: [10.0.0.1], sni: {domain: a}}", "not addresses"),
    ],
)
def test_wrong_settings_are_refused(section: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse(f"control_planes: {section}")
