"""
The process that computes decisions of the autoscaler for the daemon, one at a time.

A frame is eight bytes with a length and a pickle. Moxwell writes both ends, so unpickling is safe:
text of a tenant is only data inside values of our own types. The process has a low priority and a
memory limit, so that a decision for one tenant neither slows nor ends anything but itself.
"""

import io
import os
import pickle
import resource
import struct
import sys
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, BinaryIO

from moxwell.controllers.karpenter.decisions import DecisionTimeout
from moxwell.errors import MoxwellError

HEADER = struct.Struct(">Q")
MOST_BYTES = 1 << 30
MEMORY_BYTES = 2 << 30
NICE = 10


def encoded(value: object) -> bytes:
    """A value as a pickle; read-only views of dictionaries are allowed."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {MappingProxyType: _reduced}
    pickler.dump(value)
    return buffer.getvalue()


def _reduced(view: Any) -> tuple[Callable[..., Any], tuple[dict[Any, Any]]]:
    return MappingProxyType, (dict(view),)


def decoded(data: bytes) -> Any:
    """The value of a pickle that the other end made."""
    return pickle.loads(data)


def answer(data: bytes) -> bytes:
    """
    Compute the decision of a frame: ``(True, result)`` or ``(False, error)``.

    An error that is not ours ends the process, and the next decision starts another one.
    """
    try:
        return encoded((True, decoded(data)()))
    except MoxwellError as error:
        return encoded((False, error))
    except MemoryError:
        return encoded((False, DecisionTimeout("a decision needs more memory than it may use")))


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer frames until the input ends."""
    while header := source.read(HEADER.size):
        (length,) = HEADER.unpack(header)
        reply = answer(source.read(length))
        sink.write(HEADER.pack(len(reply)) + reply)
        sink.flush()


def main() -> None:
    """Run as ``python -m moxwell.app.decision_worker``."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
