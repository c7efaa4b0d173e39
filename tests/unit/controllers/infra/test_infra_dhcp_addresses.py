"""Machines with DHCP addresses are refreshed in turn, at a bounded rate."""

from typing import Any

import pytest
from msgspec import structs

from moxwell.api.infra.machine import (
    Initialization,
    IPAddresses,
    ProxmoxMachine,
    ProxmoxMachineSpec,
    ProxmoxMachineStatus,
)
from moxwell.api.infra.template import ProxmoxMachineChecks
from moxwell.controllers.infra.dhcp_addresses import choose_next, pause_seconds, uses_dhcp
from moxwell.runtime.key import Key

A, B, C = Key("n", "a"), Key("n", "b"), Key("o", "a")
LIVES = ProxmoxMachineStatus(initialization=Initialization(provisioned=True), power_state="running")
POOLED = (IPAddresses(net="net0", ipv4=("10.0.0.1",)),)


@pytest.mark.parametrize(
    "last, keys, expected",
    [
        pytest.param(None, [B, A], A, id="the first"),
        pytest.param(A, [C, B, A], B, id="the next"),
        pytest.param(C, [C, B, A], A, id="round again"),
        pytest.param(B, [A, C], C, id="the last one is gone"),
        pytest.param(A, [A], A, id="alone"),
        pytest.param(A, [], None, id="none"),
    ],
)
def test_they_take_turns(last: Key | None, keys: list[Key], expected: Key | None) -> None:
    assert choose_next(last, keys) == expected


@pytest.mark.parametrize(
    "count, seconds",
    [
        pytest.param(0, 60.0, id="none"),
        pytest.param(1, 60.0, id="one, once a minute"),
        pytest.param(5, 12.0, id="five, once a minute each"),
        pytest.param(10, 6.0, id="ten"),
        pytest.param(1000, 6.0, id="a thousand, as ten"),
    ],
)
def test_the_pause_has_a_lower_end(count: int, seconds: float) -> None:
    assert pause_seconds(count) == seconds


@pytest.mark.parametrize(
    "status, spec, expected",
    [
        pytest.param({}, {}, True, id="by DHCP"),
        pytest.param({"ip_addresses": POOLED}, {}, False, id="from a pool"),
        pytest.param({"power_state": "stopped"}, {}, False, id="stopped"),
        pytest.param({"initialization": Initialization()}, {}, False, id="not made yet"),
        pytest.param(
            {}, {"checks": ProxmoxMachineChecks(skip_qemu_guest_agent=True)}, False, id="no agent"
        ),
    ],
)
def test_whose_addresses_are_leased(
    status: dict[str, Any], spec: dict[str, Any], expected: bool
) -> None:
    obj = ProxmoxMachine(spec=ProxmoxMachineSpec(**spec), status=structs.replace(LIVES, **status))
    assert uses_dhcp(obj) is expected
