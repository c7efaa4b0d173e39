"""Signatures of ``cluster-info`` for bootstrap tokens, which genuine kubeadm verifies."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from moxwell.embedded.controllermanager.bootstrapsigner.plan import (
    is_signed,
    next_move,
    signature,
    signing_token,
)
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Merge, Writes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"}


def secret(**data: str) -> dict[str, Any]:
    encoded = {k.replace("_", "-"): base64.b64encode(v.encode()).decode() for k, v in data.items()}
    meta = {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    return {"type": "bootstrap.kubernetes.io/token", "metadata": meta, "data": encoded}


def test_a_signature_is_that_of_kubernetes() -> None:
    """The value of k8s.io/cluster-bootstrap/token/jws/jws_test.go."""
    text = "Hello from the other side. I must have called a thousand times."
    wanted = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
    assert signature(text, "joshua", "my voice is my passcode") == wanted


@pytest.mark.parametrize(
    "change, valid",
    [
        ({}, True),
        ({"usage-bootstrap-signing": "false"}, False),
        ({"token-id": "fedcba"}, False),
        ({"token-secret": ""}, False),
        ({"expiration": (NOW + timedelta(hours=1)).isoformat()}, True),
        ({"expiration": NOW.isoformat()}, False),
        ({"expiration": "soon"}, False),
    ],
)
def test_which_tokens_sign(change: dict[str, str], valid: bool) -> None:
    found = signing_token(secret(**(GOOD | change)), NOW)
    assert found == (("abcdef", "0123456789abcdef") if valid else None)


def test_signatures_follow_the_tokens_and_the_kubeconfig() -> None:
    token = secret(**GOOD)
    info = {"data": {"kubeconfig": "text", "jws-kubeconfig-gone00": "old", "other": "kept"}}
    move = next_move(info, [token], NOW)
    assert isinstance(move, Writes)
    (write,) = move.writes
    assert isinstance(write, Merge)
    signed = signature("text", "abcdef", "0123456789abcdef")
    change = {"jws-kubeconfig-abcdef": signed, "jws-kubeconfig-gone00": None}
    assert write.change == {"data": change}
    data = {"kubeconfig": "text", "jws-kubeconfig-abcdef": signed}
    assert next_move({"data": data}, [token], NOW) == Done()
    assert next_move(None, [token], NOW) == Done()


@pytest.mark.parametrize(
    "change, stored, signed",
    [
        pytest.param({}, "its signature", True, id="signed"),
        pytest.param({}, "another", False, id="signed with another secret"),
        pytest.param({}, None, False, id="not signed"),
        pytest.param({"expiration": NOW.isoformat()}, "its signature", False, id="expired"),
        pytest.param({"expiration": NOW.isoformat()}, None, True, id="expired and removed"),
        pytest.param({"usage-bootstrap-signing": "false"}, None, True, id="does not sign"),
    ],
)
def test_when_a_token_needs_no_look_at_the_others(
    change: dict[str, str], stored: str | None, signed: bool
) -> None:
    own = signature("text", "abcdef", "0123456789abcdef")
    data = {"kubeconfig": "text"}
    if stored is not None:
        data["jws-kubeconfig-abcdef"] = own if stored == "its signature" else stored
    token = secret(**(GOOD | change))
    assert is_signed({"data": data}, token, NOW) is signed
    assert (next_move({"data": data}, [token], NOW) == Done()) is signed


def test_nothing_is_signed_without_a_kubeconfig() -> None:
    assert is_signed(None, secret(**GOOD), NOW)
