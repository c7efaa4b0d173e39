"""Which changes of a Machine cause a pass of its ProxmoxMachine."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.controllers.infra.machine.controller import is_relevant

Json = dict[str, Any]


def machine(**changes: Json) -> Machine:
    body: Json = {
        "metadata": {"name": "m", "namespace": "team", "uid": "u", "resourceVersion": "1"},
        "spec": {"clusterName": "c1"},
        "status": {"phase": "Pending"},
    }
    merged = {key: {**value, **changes.get(key, {})} for key, value in body.items()}
    return msgspec.convert(merged, Machine)


@pytest.mark.parametrize(
    "change, relevant",
    [
        ({"status": {"phase": "Provisioning"}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "R"}]}}, False),
        ({"metadata": {"resourceVersion": "2"}}, False),
        ({"status": {"nodeRef": {"name": "n"}}}, True),
        ({"status": {"initialization": {"infrastructureProvisioned": True}}}, True),
        ({"spec": {"version": "v1.36.0"}}, True),
        ({"spec": {"bootstrap": {"dataSecretName": "s"}}}, True),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
        ({"metadata": {"annotations": {"a": "b"}}}, True),
        ({"metadata": {"uid": "other"}}, True),
    ],
)
def test_conditions_of_the_machine_cause_no_pass(change: Json, relevant: bool) -> None:
    assert is_relevant(machine(), machine(**change)) is relevant


def test_a_new_and_a_deleted_machine_cause_a_pass() -> None:
    assert is_relevant(None, machine())
    assert is_relevant(machine(), None)
