"""Of which ProxmoxMachines the status may be written later than the pass that describes it."""

from typing import Any

import msgspec
import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.machine_reasons import ProxmoxMachineReason
from moxwell.api.infra.warm_guests import WARM_GUEST_OF
from moxwell.controllers.infra.machine.controller import is_being_created

Json = dict[str, Any]
WARM_READY = [{"type": "Ready", "status": "True", "reason": ProxmoxMachineReason.WARM}]
CLONING = [{"type": "Ready", "status": "False", "reason": "Cloning"}]


def machine(metadata: Json, spec: Json, status: Json) -> ProxmoxMachine:
    body = {"metadata": {"name": "m", "namespace": "team"} | metadata, "spec": spec}
    return msgspec.convert(body | {"status": status}, ProxmoxMachine)


@pytest.mark.parametrize(
    "metadata, spec, status, late",
    [
        pytest.param({}, {}, {}, True, id="new"),
        pytest.param({}, {}, {"conditions": CLONING}, True, id="cloning"),
        pytest.param(
            {}, {"providerID": "proxmox://r/1"}, {"conditions": CLONING}, True, id="boots"
        ),
        pytest.param({}, {}, {"initialization": {"provisioned": True}}, False, id="provisioned"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, {}, False, id="deleting"),
        pytest.param({"annotations": {WARM_GUEST_OF: "c"}}, {}, {}, False, id="warm"),
        pytest.param({}, {}, {"conditions": WARM_READY}, False, id="handed over"),
    ],
)
def test_the_status_of_a_guest_that_is_made_may_be_late(
    metadata: Json, spec: Json, status: Json, late: bool
) -> None:
    assert is_being_created(machine(metadata, spec, status)) is late
