"""IPAddressClaims and pools: allocation, exhaustion, release."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from moxwell.api.ipam import InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.embedded.clusterapi.ipam.controller import ReleasedAddresses
from moxwell.embedded.clusterapi.ipam.plan import (
    PROTECT_ADDRESS,
    ObservedIPAddressClaim,
    ReleaseAddress,
    describe,
    next_move,
)
from moxwell.runtime.move import Done, Wait, is_final
from moxwell.runtime.writes import Create, Writes
from moxwell.testing.loop import LoopClock, run_virtual

REF = {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}
POOL = msgspec.convert(
    {
        "metadata": {"name": "p", "namespace": "d"},
        "spec": {
            "addresses": ["10.0.0.1-10.0.0.3"],
            "prefix": 24,
            "gateway": "10.0.0.1",
            "addressReuseGracePeriodSeconds": 60,
        },
    },
    InClusterIPPool,
)
ADDRESS = msgspec.convert(
    {
        "metadata": {"name": "a", "namespace": "d", "uid": "x", "finalizers": [PROTECT_ADDRESS]},
        "spec": {"claimRef": {"name": "a"}, "poolRef": REF, "address": "10.0.0.2", "prefix": 24},
    },
    IPAddress,
)


def claim(*, deleting: bool = False, **ref: Any) -> IPAddressClaim:
    meta = {"name": "a", "namespace": "d", "uid": "c"}
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    return msgspec.convert({"metadata": meta, "spec": {"poolRef": REF | ref}}, IPAddressClaim)


Seen = ObservedIPAddressClaim


@pytest.mark.parametrize(
    ("obj", "seen", "expected", "reason"),
    [
        pytest.param(claim(), Seen(), Wait, "PoolNotFound", id="no pool"),
        pytest.param(claim(), Seen(POOL), Writes, "AddressAllocated", id="the first free one"),
        pytest.param(
            claim(),
            Seen(POOL, None, ("10.0.0.2", "10.0.0.3")),
            Wait,
            "PoolExhausted",
            id="none is free",
        ),
        pytest.param(claim(), Seen(POOL, ADDRESS), Done, "AddressAllocated", id="it has one"),
        pytest.param(claim(apiGroup="other"), Seen(), Done, None, id="another provider's pool"),
        pytest.param(
            claim(deleting=True), Seen(POOL, ADDRESS), ReleaseAddress, None, id="it is released"
        ),
        pytest.param(claim(deleting=True), Seen(POOL), Done, None, id="nothing is left"),
    ],
)
def test_next_move(obj: IPAddressClaim, seen: Seen, expected: type, reason: str | None) -> None:
    move = next_move(obj, seen)
    assert isinstance(move, expected)
    status = describe(obj, move)
    assert (status.conditions[0].reason if status else None) == reason
    assert is_final(move) is isinstance(move, Done | ReleaseAddress)


def test_the_address_of_a_claim_has_its_name_and_is_protected() -> None:
    move = next_move(claim(), Seen(POOL))
    assert isinstance(move, Writes)
    (write,) = move.writes
    assert isinstance(write, Create)
    assert (write.obj.name, write.obj.spec.address) == ("a", "10.0.0.2")
    assert write.obj.metadata.finalizers == (PROTECT_ADDRESS,)


def test_a_release_keeps_the_address_unused_for_the_grace_period() -> None:
    async def story() -> None:
        clock = LoopClock()
        released = ReleasedAddresses(clock)
        move = next_move(claim(deleting=True), Seen(POOL, ADDRESS))
        assert isinstance(move, ReleaseAddress)
        released.add(move.pool, move.address, move.grace_seconds)
        assert released.of_pool(move.pool) == ["10.0.0.2"]
        await clock.sleep(timedelta(seconds=61).total_seconds())
        assert released.of_pool(move.pool) == []

    run_virtual(story())
