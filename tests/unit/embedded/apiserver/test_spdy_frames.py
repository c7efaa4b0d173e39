"""Frames of SPDY/3.1: what a client of Kubernetes sends, in any pieces, and what is refused."""

import hashlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.embedded.apiserver.kubelet import spdy_frames
from moxwell.embedded.apiserver.kubelet.pod_target import choose_target
from moxwell.embedded.apiserver.kubelet.spdy_frames import (
    Frame,
    FrameReader,
    FrameWriter,
    GoAway,
    PingReceived,
    SpdyError,
    StreamData,
    StreamOpened,
    StreamReset,
)
from moxwell.embedded.apiserver.status_errors import StatusError

# of the dictionary in the SPDY specification, 1423 bytes
DICTIONARY = "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"


class Client:
    """Encodes the frames of a client."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=spdy_frames.header_dictionary())

    def open(self, stream: int, headers: dict[str, str]) -> bytes:
        block = struct.pack(">I", len(headers))
        for text in (t for pair in headers.items() for t in pair):
            block += struct.pack(">I", len(text)) + text.encode()
        return self.raw(stream, block)

    def raw(self, stream: int, block: bytes) -> bytes:
        packed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control(1, struct.pack(">IIH", stream, 0, 0) + packed)


def control(kind: int, payload: bytes, version: int = 3) -> bytes:
    return struct.pack(">II", 1 << 31 | version << 16 | kind, len(payload)) + payload


def test_the_dictionary_is_that_of_the_specification() -> None:
    assert hashlib.sha256(spdy_frames.header_dictionary()).hexdigest() == DICTIONARY


@given(st.lists(st.integers(1, 40), max_size=40))
def test_frames_are_read_in_any_pieces(cuts: list[int]) -> None:
    client = Client()
    sent = client.open(1, {"streamType": "error"}) + client.open(3, {"port": "80"})
    sent += FrameWriter().data(1, b"abc") + FrameWriter().data(1, b"", fin=True)
    sent += FrameWriter().ping(7) + FrameWriter().reset(3) + control(7, bytes(8))
    sent += control(4, bytes(4)) + control(9, bytes(8))  # settings and window updates
    reader, found = FrameReader(), list[Frame]()
    for size in cuts:
        found += reader.feed(sent[:size])
        sent = sent[size:]
    found += reader.feed(sent)
    assert found == [
        StreamOpened(1, {"streamtype": "error"}, False),
        StreamOpened(3, {"port": "80"}, False),
        StreamData(1, b"abc", False),
        StreamData(1, b"", True),
        PingReceived(7),
        StreamReset(3),
        GoAway(),
    ]


BAD = {
    "too long": struct.pack(">II", 1, 1 << 21),
    "another version": control(1, bytes(10), version=2),
    "too short": control(6, b"ab"),
    "headers that are not compressed": control(1, bytes(10) + b"nothing of zlib"),
    "headers that expand without end": Client().raw(1, bytes(10_000_000))[:500_000],
    "headers with a wrong count": Client().raw(1, struct.pack(">I", 1_000_000)),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_client_that_does_not_keep_to_the_protocol_is_refused(data: bytes) -> None:
    with pytest.raises(SpdyError):
        list(FrameReader().feed(data))


POD = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {
        "nodeName": "w1",
        "containers": [{"name": "a"}, {"name": "b"}],
        "initContainers": [{"name": "i"}],
    },
}


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("a", ""),
        ("i", ""),
        ("", "a container name must be specified for pod p, choose one of: [a b] or one of the"),
        ("x", "container x is not valid for pod p"),
    ],
)
def test_the_container_of_a_request(wanted: str, problem: str) -> None:
    if problem:
        with pytest.raises(StatusError) as caught:
            choose_target(POD, wanted, container=True)
        assert caught.value.message.startswith(problem)
    else:
        assert choose_target(POD, wanted, container=True).container == wanted
    assert choose_target(POD, wanted, container=False).container == ""
