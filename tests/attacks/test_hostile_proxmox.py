"""
A Proxmox region that answers whatever it likes: it costs that region only, within its deadlines.

The first part drives two regions over real sockets, one of them hostile. The second part sends
generated answers to every method of the client.
"""

import asyncio
import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moxwell.errors import MoxwellError
from moxwell.pve import errors, http_response
from moxwell.pve.caller import MAX_VALUES, decode
from moxwell.pve.client import PveReader, PveWriter
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.endpoints.cluster import ClusterResource
from moxwell.pve.guests import GuestConfig
from moxwell.pve.inventory import MAX_ROWS
from moxwell.pve.model import view_of
from moxwell.pve.regions import Regions
from moxwell.pve.transport import DEADLINE_SECONDS, UPLOAD_SECONDS, FileUpload
from moxwell.pve.values import MAX_UPID, Params, SecretValue, Upid
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.scripted_proxmox import ReceivedRequest, Reply, serve_script

HEAD = b"HTTP/1.1 200 OK\r\n"
NODE = '{"id":"node/a","type":"node","node":"a","status":"online"'
GUEST = '{"id":"qemu/100","type":"qemu","node":"a","vmid":100'


def rows(*fields: str, row: str = NODE) -> str:
    return '{"data":[' + ",".join(f"{row},{field}}}" for field in fields) + "]}"


def raw(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


HOSTILE = [
    pytest.param(Reply(body=rows('"x":' + "[" * 5000 + "]" * 5000)), "InvalidAnswer", id="nested"),
    pytest.param(Reply(body=rows('"x":' + '{"a":' * 9000)), "InvalidAnswer", id="nested objects"),
    pytest.param(Reply(body="[" * 100_000), "InvalidAnswer", id="only brackets"),
    pytest.param(Reply(body=rows('"maxcpu":"inf"')), "InvalidAnswer", id="infinity"),
    pytest.param(Reply(body=rows('"maxcpu":"nan"')), "InvalidAnswer", id="not a number"),
    pytest.param(Reply(body=rows('"maxcpu":NaN')), "InvalidAnswer", id="NaN"),
    pytest.param(Reply(body=rows('"maxmem":' + "9" * 6000)), "InvalidAnswer", id="huge integer"),
    pytest.param(Reply(body=rows('"maxmem":"%s"' % ("9" * 6000))), "InvalidAnswer", id="as text"),
    pytest.param(Reply(body=rows('"name":"\\ud800"')), "InvalidAnswer", id="surrogate"),
    pytest.param(Reply(body='{"data":{"a":1}}'), "InvalidAnswer", id="an object, not a list"),
    pytest.param(Reply(body='{"data":[1,2]}'), "InvalidAnswer", id="numbers, not objects"),
    pytest.param(Reply(body='{"data":[{"id":[],"type":{}}]}'), "InvalidAnswer", id="wrong types"),
    pytest.param(Reply(body="null"), "InvalidAnswer", id="null"),
    pytest.param(Reply(body=""), "InvalidAnswer", id="empty"),
    pytest.param(Reply(body="<html>hello</html>"), "InvalidAnswer", id="HTML"),
    pytest.param(Reply(raw=raw(b'{"data":"\xff\xfe"}')), "InvalidAnswer", id="not UTF-8"),
    pytest.param(
        Reply(body=rows(*['"x":1'] * (MAX_ROWS + 1), row='{"id":"","type":""')),
        "InvalidAnswer",
        id="too many objects",
    ),
    pytest.param(
        Reply(body='{"data":[' + "{}," * MAX_VALUES + "{}]}"), "InvalidAnswer", id="many values"
    ),
    pytest.param(
        Reply(raw=HEAD + b"Content-Length: 99999999999\r\n\r\n" + b"x" * 10_000_000),
        "UnreadableResponse",
        id="endless body",
    ),
    pytest.param(
        Reply(raw=HEAD + b"Transfer-Encoding: chunked\r\n\r\n-6\r\nabc"),
        "UnreadableResponse",
        id="negative chunk",
    ),
    pytest.param(
        Reply(raw=b"HTTP/1.1 103 Early\r\n\r\n" * 5000), "UnreadableResponse", id="thousands of 1xx"
    ),
    pytest.param(Reply(302, reason="Found"), "Redirected", id="redirect"),
    pytest.param(Reply(raw=raw(b"x" * 1000), drip_seconds=5), "RegionUnreachable", id="slow drip"),
    pytest.param(Reply(silent=True), "RegionUnreachable", id="silent"),
    pytest.param(Reply(cut=True), "RegionUnreachable", id="cut"),
    pytest.param(Reply(500, '{"message":' + "[" * 100_000), "ProxmoxError", id="deep error body"),
    pytest.param(
        Reply(500, json.dumps({"message": "volume '" * 200_000})), "ProxmoxError", id="long error"
    ),
    pytest.param(
        Reply(400, json.dumps({"errors": {f"k{i}": "x" * 99 for i in range(9999)}})),
        "InvalidParameter",
        id="many fields",
    ),
]
GOOD = Reply(body=rows('"maxcpu":4', '"maxcpu":8'))


def region(name: str, url: str) -> RegionConfig:
    auth = TokenAuth("u@pve!tt", SecretValue("hunter2"))
    return RegionConfig(region=name, urls=(url,), auth=auth)


@pytest.mark.parametrize(("reply", "reason"), HOSTILE)
def test_a_hostile_region_costs_only_itself(reply: Reply, reason: str) -> None:
    async def story() -> None:
        polls: list[float] = []

        def good(_: ReceivedRequest) -> Reply:
            polls.append(asyncio.get_running_loop().time())
            return GOOD

        async with serve_script(lambda _: reply) as bad, serve_script(good) as fine:
            clock = LoopClock()
            configs = [region("bad", bad.url), region("good", fine.url)]
            regions = Regions(configs, clock)
            running = asyncio.create_task(regions.run())
            await clock.sleep(203)
            assert not running.done()
            health = regions["bad"].inventory.health
            assert (health.reachable, health.reason) == (False, reason)
            assert len(health.error) < 5000
            assert regions["good"].inventory.health.reachable
            assert len(polls) >= 6  # one in 30 s, undisturbed
            assert max(b - a for a, b in itertools.pairwise(polls)) < 35
            running.cancel()
            await asyncio.wait([running])

    run_virtual(story())


def test_an_error_of_ours_in_one_region_is_reported_and_the_region_restarts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Should a decoder miss a case, the loops of that region end; nothing else does."""

    async def story() -> None:
        async with serve_script(lambda _: GOOD) as one, serve_script(lambda _: GOOD) as two:
            clock = LoopClock()
            regions = Regions([region("bad", one.url), region("good", two.url)], clock)
            inventory = regions["bad"].inventory
            monkeypatch.setattr(regions["bad"].reader.cluster, "resources", _broken)
            running = asyncio.create_task(regions.run())
            await clock.sleep(63)
            assert not running.done()
            assert (inventory.health.reachable, inventory.health.reason) == (False, "InternalError")
            assert "OverflowError" in inventory.health.error
            assert regions["good"].inventory.health.reachable
            monkeypatch.undo()
            await clock.sleep(63)
            assert inventory.health.reachable
            running.cancel()
            await asyncio.wait([running])

    run_virtual(story())


async def _broken() -> None:
    raise OverflowError("cannot convert float infinity to integer")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UPID:",
        "UPID:a:0",
        "UPID:a/../b:0000CAFE:0000CAFE:65000000:qmstart:100:u@pve:",
        "UPID:a\nb:0000CAFE:0000CAFE:65000000:qmstart:100:u@pve:",
        "UPID:a:0000CAFE:0000CAFE:65000000:qmstart:" + "1" * MAX_UPID + ":u@pve:",
        "UPID:" + "a" * 1_000_000,
    ],
)
def test_a_wrong_upid_is_refused_with_a_short_message(text: str) -> None:
    with pytest.raises(MoxwellError) as caught:
        Upid(text)
    assert len(str(caught.value)) < MAX_UPID + 100


def test_impossible_figures_are_not_used() -> None:
    """Negative sizes and VMIDs would be capacity that does not exist."""
    fields = '"maxcpu":-4,"maxmem":-1,"mem":-5,"cpu":-1,"maxdisk":-9,"disk":-9,"uptime":-1'
    bodies = [
        rows(fields),
        rows(fields, row=GUEST),
        rows('"vmid":-5', row='{"id":"","type":"qemu"'),
    ]
    storage = '{"id":"storage/a/s","type":"storage","node":"a","storage":"s"'
    for body in (*bodies, rows(fields, row=storage)):
        view = view_of(decode(list[ClusterResource], body.encode(), "p").data)
        for host in view.hosts.values():
            assert (host.cpus, host.memory_bytes, host.memory_used_bytes) == (0, 0, 0)
        for guest in view.guests.values():
            assert guest.vmid == 100
            assert (guest.cpus, guest.memory_bytes, guest.disk_bytes) == (0, 0, 0)
        for volume_store in view.storages.values():
            assert (volume_store.total_bytes, volume_store.free_bytes) == (0, 0)


def test_limits_leave_room_for_a_large_region() -> None:
    """10,000 guests with every field are far below the limits."""
    full = '"name":"n","tags":"a;b;c","maxmem":1,"maxdisk":1,"cpu":0.1,"maxcpu":4,"pool":"p","x":1'
    body = rows(*[full] * 10_000, row=GUEST).encode()
    assert len(decode(list[ClusterResource], body, "p").data) == 10_000
    assert len(body) < http_response.MAX_BODY_BYTES / 4


# ---- generated answers


@dataclass(slots=True)
class FixedTransport:
    """A transport with one answer to everything."""

    body: bytes
    region: str = "r"

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        return self.body

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        return self.body

    async def close(self) -> None:
        return


UPID = Upid("UPID:a:0000CAFE:0000CAFE:65000000:qmstart:100:u@pve:")
ARGUMENTS: dict[Any, Any] = {
    str: "a",
    int: 100,
    float: 1.0,
    bool: True,
    Upid: UPID,
    FileUpload: FileUpload.of("a.iso", b"x"),
}


def argument(hint: Any) -> Any:
    """A plausible argument of a type."""
    if hint in ARGUMENTS:
        return ARGUMENTS[hint]
    if inspect.isclass(hint) and hint.__module__.startswith("moxwell"):
        return hint(**required(hint))
    text = str(hint)
    for fragment, value in (
        ("Literal", getattr(hint, "__args__", ("a",))[0]),
        ("Mapping", {"a": "b"}),
        ("dict", {"a": "b"}),
        ("Sequence", ("a",)),
        ("tuple", ("a",)),
    ):
        if fragment in text:
            return value
    return "a"


def calls(pve: PveReader) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every public method of every endpoint group, ready to be called."""
    groups = [n for n in dir(type(pve)) if not n.startswith("_") and n not in {"region", "close"}]
    for name in groups:
        group = getattr(pve, name)
        if callable(group):
            yield name, group
            continue
        for method_name, method in inspect.getmembers(group, inspect.iscoroutinefunction):
            if not method_name.startswith("_"):
                yield f"{name}.{method_name}", functools.partial(method, **required(method))


async def outcome(call: Callable[[], Any]) -> int:
    """The length of the error message; 0 for a result. Any other exception fails the test."""
    try:
        await call()
    except MoxwellError as error:
        return len(str(error))
    return 0


def required(method: Any) -> dict[str, Any]:
    """Plausible values of the required parameters of a method or class."""
    hints = get_type_hints(method)
    return {
        name: argument(hints.get(name))
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
    }


def field_names() -> list[str]:
    """The names that the client reads."""
    names = {"data", "result", "errors", "message", "size", "value", "key"}
    pending = list(msgspec.Struct.__subclasses__())
    while pending:
        struct = pending.pop()
        pending += struct.__subclasses__()
        if struct.__module__.startswith("moxwell.pve"):
            names |= set(struct.__struct_encode_fields__)
    return sorted(names)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["inf", "nan", "-1", "1e400", "0x10", "9" * 5000, "UPID:x", "a=b,c=d", "1G,2G"]
    ),
)
NAMES = st.one_of(st.sampled_from(field_names()), st.text(max_size=5))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=8),
    max_leaves=20,
)
DATA = st.one_of(VALUES, st.lists(st.dictionaries(NAMES, VALUES, max_size=12), max_size=3))
BODIES = st.one_of(
    DATA.map(lambda data: json.dumps({"data": data}).encode()),
    VALUES.map(lambda data: json.dumps(data).encode()),
    st.binary(max_size=60),
    DATA.map(lambda data: json.dumps({"data": data}).encode()[:-3]),
    st.integers(1, 30_000).map(lambda depth: b'{"data":' + b"[" * depth),
    st.integers(1, 1500).map(lambda n: b'{"data":{"a":' + b"[" * n + b"]" * n + b"}}"),
)


@settings(max_examples=12, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(BODIES)
def test_every_method_returns_or_raises_a_known_error(body: bytes) -> None:
    async def story() -> None:
        writer = PveWriter(FixedTransport(body))
        lengths = {name: await outcome(call) for name, call in calls(writer)}
        assert len(lengths) > 100
        assert max(lengths.values()) < 10_000, lengths

    asyncio.run(story())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(BODIES)
def test_what_is_decoded_can_be_used(body: bytes) -> None:
    """The view of a region and the configuration of a guest, from generated answers."""
    try:
        view = view_of(decode(list[ClusterResource], body, "p").data)
    except errors.PveError:
        view = None
    if view is not None:
        assert len(view.by_name) + len(view.by_host) + len(view.by_owner) >= 0
    try:
        config = GuestConfig.of(decode(dict[str, Any], body, "p").data)
    except errors.PveError:
        return
    for name in ("tags", "disks", "nics", "unused", "uuid", "agent", "name", "is_stale_clone"):
        getattr(config, name)
    for name in ("cores", "sockets", "memory_mib"):
        try:
            assert getattr(config, name) >= 0
        except errors.InvalidAnswer:
            continue
    for slot in config:
        try:
            assert config.size_bytes(slot) >= 0
        except MoxwellError:
            continue


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(300, 599), st.text(max_size=30), BODIES)
def test_every_error_response_has_a_class(status: int, reason: str, body: bytes) -> None:
    error = errors.from_response(status, reason, body, where="p")
    assert isinstance(error, errors.PveError)
    assert error.reason
