"""KubeadmConfigs of workers: when bootstrap data is created and a token renewed."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.core import Cluster, Machine
from moxwell.embedded.clusterapi import bootstrap_tokens
from moxwell.embedded.clusterapi.bootstrap_tokens import RenewToken
from moxwell.embedded.clusterapi.kubeadm.plan import (
    CreateBootstrapData,
    ObservedKubeadmConfig,
    describe,
    next_move,
)
from moxwell.runtime.move import Done

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = msgspec.convert({"metadata": {"name": "m", "namespace": "d"}}, KubeadmConfig)


def machine(*, joined: bool = False) -> Machine:
    status = {"nodeRef": {"name": "m"}} if joined else {}
    tree = {
        "metadata": {"name": "m", "namespace": "d"},
        "spec": {"clusterName": "c", "bootstrap": {}},
        "status": status,
    }
    return msgspec.convert(tree, Machine)


def cluster(infrastructure: bool, control_plane: bool) -> Cluster:
    reported = {
        "infrastructureProvisioned": infrastructure,
        "controlPlaneInitialized": control_plane,
    }
    tree = {"metadata": {"name": "c"}, "spec": {}, "status": {"initialization": reported}}
    return msgspec.convert(tree, Cluster)


def token(minutes: float) -> Json:
    until = (NOW + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    data = {"expiration": base64.b64encode(until.encode()).decode()}
    return {"metadata": {"name": "bootstrap-token-x"}, "data": data}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param({}, "WaitingForMachine", id="no machine"),
        pytest.param({"machine": machine()}, "WaitingForInfrastructure", id="no cluster"),
        pytest.param(
            {"machine": machine(), "cluster": cluster(False, False)},
            "WaitingForInfrastructure",
            id="no infrastructure",
        ),
        pytest.param(
            {"machine": machine(), "cluster": cluster(True, False)},
            "WaitingForControlPlane",
            id="no control plane",
        ),
        pytest.param(
            {"machine": machine(), "cluster": cluster(True, True), "has_kubeconfig": True},
            "WaitingForControlPlane",
            id="no CA Secret",
        ),
        pytest.param(
            {
                "machine": machine(),
                "cluster": cluster(True, True),
                "has_kubeconfig": True,
                "ca_secret": {"data": {}},
            },
            CreateBootstrapData,
            id="everything is there",
        ),
        pytest.param(
            {"machine": machine(), "has_data_secret": True, "token_secret": token(5)},
            RenewToken,
            id="the token expires soon",
        ),
        pytest.param(
            {"machine": machine(), "has_data_secret": True, "token_secret": token(14)},
            Done,
            id="the token is valid",
        ),
        pytest.param({"machine": machine(joined=True), "has_data_secret": True}, Done, id="joined"),
    ],
)
def test_next_move(seen: dict[str, Any], expected: Any) -> None:
    move = next_move(CONFIG, ObservedKubeadmConfig(now=NOW, **seen))
    status = describe(CONFIG, move)
    if isinstance(expected, str):
        assert [c.reason for c in status.conditions] == [expected]
        assert not status.data_secret_name
    else:
        assert isinstance(move, expected)
        assert status.data_secret_name == "m"


@pytest.mark.parametrize(
    "minutes, due",
    [
        pytest.param(15, False, id="new"),
        pytest.param(8, False, id="more than half of its life is left"),
        pytest.param(7, True, id="less than half is left"),
        pytest.param(-1, True, id="expired"),
    ],
)
def test_a_token_is_renewed_when_half_its_life_is_over(minutes: int, due: bool) -> None:
    assert bootstrap_tokens.needs_renewal(token(minutes), NOW) is due


def test_a_move_does_not_show_secrets() -> None:
    seen = ObservedKubeadmConfig(
        now=NOW,
        machine=machine(),
        cluster=cluster(True, True),
        has_kubeconfig=True,
        ca_secret={"data": {"tls.key": "PRIVATE"}},
        contents={"/etc/x": "PRIVATE"},
    )
    assert "PRIVATE" not in repr(next_move(CONFIG, seen))
