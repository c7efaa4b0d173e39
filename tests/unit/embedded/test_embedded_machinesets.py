"""Groups of machines by the stand-ins: who may make machines, and when a token is renewed."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.api.capi.core import MachineSpec
from moxwell.api.capi.machinesets import (
    MachineDeployment,
    MachineDeploymentSpec,
    MachineSet,
    MachineSetSpec,
    MachineTemplate,
    Rollout,
    Strategy,
)
from moxwell.api.capi.shared import NO_NEW_MACHINES, TEMPLATE_HASH
from moxwell.api.meta import ObjectMeta
from moxwell.embedded.clusterapi.kubeadm import plan as kubeadm
from moxwell.embedded.clusterapi.machinedeployment import plan
from moxwell.embedded.clusterapi.machineset.plan import may_make

MOULD = MachineTemplate(spec=MachineSpec(cluster_name="c"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def group(strategy: Any) -> MachineDeployment:
    rollout = Rollout(strategy=Strategy(type=strategy))
    return MachineDeployment(
        metadata=ObjectMeta(name="w", namespace="default"),
        spec=MachineDeploymentSpec(cluster_name="c", template=MOULD, rollout=rollout),
    )


def fleet(name: str, short: str, *, held: bool = False) -> MachineSet:
    notes = {NO_NEW_MACHINES: "true"} if held else {}
    labels = {TEMPLATE_HASH: short}
    return MachineSet(
        metadata=ObjectMeta(name=name, labels=labels, annotations=notes),
        spec=MachineSetSpec(cluster_name="c", template=MOULD),
    )


@pytest.mark.parametrize(
    "strategy, held, found",
    [
        pytest.param("OnDelete", False, {"old": "true"}, id="an old set must not replace"),
        pytest.param("OnDelete", True, {}, id="it knows already"),
        pytest.param("RollingUpdate", True, {"old": None}, id="it may again when the group rolls"),
        pytest.param("RollingUpdate", False, {}, id="nothing to say in a rolling update"),
    ],
)
def test_reins(strategy: str, held: bool, found: dict[str, str | None]) -> None:
    made = group(strategy)
    sets = [fleet("old", "another", held=held), fleet("new", plan.template_hash(made))]
    assert plan.reins(made, sets) == found
    assert may_make(sets[0]) is not held


@pytest.mark.parametrize(
    "minutes, due",
    [
        pytest.param(15, False, id="just made"),
        pytest.param(8, False, id="more than half left"),
        pytest.param(7, True, id="less than half left"),
        pytest.param(-1, True, id="run out"),
    ],
)
def test_a_token_is_renewed_when_half_its_life_is_over(minutes: int, due: bool) -> None:
    until = (NOW + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    token = {"data": {"expiration": base64.b64encode(until.encode()).decode()}}
    assert kubeadm.is_running_out(token, NOW) is due
