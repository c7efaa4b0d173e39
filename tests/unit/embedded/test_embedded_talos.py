"""TalosConfigs: what is refused, the next move, the machine configuration and its patches."""

import base64
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.talos import TalosConfig
from moxwell.bootstrap import talos_config, talos_secrets
from moxwell.embedded.clusterapi import bootstrap_tokens
from moxwell.embedded.clusterapi.bootstrap_tokens import RenewToken
from moxwell.embedded.clusterapi.talos.controller import (
    configuration_from_secrets,
    machine_configuration,
)
from moxwell.embedded.clusterapi.talos.plan import (
    CreateFromSecrets,
    CreateTalosData,
    CreateTalosSecret,
    ObservedTalosConfig,
    TalosConfigReason,
    describe,
    next_move,
)
from moxwell.errors import Invalid
from moxwell.pki.certificates import create_ca
from moxwell.runtime.move import Done, Wait

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CA = create_ca("kubernetes", NOW)
TALOS_SECRETS = talos_secrets.create_secrets(NOW)
TOKEN = "abcdef.0123456789abcdef"


def secret(**data: bytes) -> dict[str, Any]:
    meta = {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    return {"metadata": meta, "data": {k: base64.b64encode(v).decode() for k, v in data.items()}}


def config(**spec: Any) -> TalosConfig:
    tree = {"metadata": {"name": "w1", "namespace": "d"}, "spec": {"generateType": "worker"} | spec}
    return msgspec.convert(tree, TalosConfig)


def seen(**changes: Any) -> ObservedTalosConfig:
    joined = changes.pop("joined", False)
    machine = {
        "metadata": {"name": "w1", "namespace": "d"},
        "spec": {"clusterName": "c", "version": "v1.34.1"},
        "status": {"nodeRef": {"name": "w1"}} if joined else {},
    }
    cluster = {
        "metadata": {"name": "c", "namespace": "d"},
        "spec": {
            "controlPlaneEndpoint": {"host": "192.0.2.10", "port": 6443},
            "clusterNetwork": {
                "pods": {"cidrBlocks": ["10.244.0.0/16"]},
                "services": {"cidrBlocks": ["10.96.0.0/12"]},
            },
        },
        "status": {"initialization": {"controlPlaneInitialized": True}},
    }
    found = ObservedTalosConfig(
        now=NOW,
        machine=msgspec.convert(machine, Machine),
        cluster=msgspec.convert(cluster, Cluster),
        ca_secret=secret(**{"tls.crt": CA.certificate}),
        talos_secret=secret(**{"tls.crt": CA.certificate, "token": TOKEN.encode()}),
        reachable=True,
    )
    return dataclasses.replace(found, **changes)


def token(left: timedelta) -> dict[str, Any]:
    until = (NOW + left).strftime("%Y-%m-%dT%H:%M:%SZ")
    return secret(expiration=until.encode())


MOVES = {
    "no machine": (config(), seen(machine=None), TalosConfigReason.WAITING_FOR_MACHINE),
    "no answer": (config(), seen(reachable=False), TalosConfigReason.WAITING_FOR_CONTROL_PLANE),
    "no CA": (config(), seen(ca_secret=None), TalosConfigReason.WAITING_FOR_CONTROL_PLANE),
    "no Talos CA": (config(), seen(talos_secret=None), CreateTalosSecret),
    "everything is there": (config(), seen(), CreateTalosData),
    "a token that ends soon": (
        config(),
        seen(has_data_secret=True, token_secret=token(timedelta(minutes=5))),
        RenewToken,
    ),
    "a young token": (
        config(),
        seen(has_data_secret=True, token_secret=token(timedelta(minutes=14))),
        Done,
    ),
    "joined": (config(), seen(has_data_secret=True, joined=True), Done),
    "no secrets": (
        config(generateType="controlplane"),
        seen(),
        TalosConfigReason.WAITING_FOR_CONTROL_PLANE,
    ),
    "a control plane": (
        config(generateType="controlplane"),
        seen(secrets=TALOS_SECRETS, reachable=False),
        CreateFromSecrets,
    ),
    "a worker of Talos": (config(), seen(secrets=TALOS_SECRETS), CreateFromSecrets),
    "the first of old": (config(generateType="init"), seen(), TalosConfigReason.UNSUPPORTED),
    "JSON patches": (
        config(configPatches=[{"op": "add"}]),
        seen(),
        TalosConfigReason.UNSUPPORTED,
    ),
    "no data": (config(generateType="none"), seen(), TalosConfigReason.UNSUPPORTED),
}


@pytest.mark.parametrize(("config", "seen", "expected"), MOVES.values(), ids=MOVES)
def test_the_next_move(config: TalosConfig, seen: ObservedTalosConfig, expected: Any) -> None:
    move = next_move(config, seen)
    if isinstance(expected, TalosConfigReason):
        assert isinstance(move, Wait)
        assert move.reason == expected
    else:
        assert isinstance(move, expected)
    assert describe(config, seen, move).ready == isinstance(
        move, CreateTalosData | CreateFromSecrets | RenewToken | Done
    )


def created(config: TalosConfig) -> list[dict[str, Any]]:
    move = next_move(config, seen())
    assert isinstance(move, CreateTalosData)
    return list(yaml.safe_load_all(machine_configuration(move, TOKEN)))


def test_a_worker_has_endpoint_ca_and_token() -> None:
    (made,) = created(config())
    assert made["cluster"]["controlPlane"]["endpoint"] == "https://192.0.2.10:6443"
    assert base64.b64decode(made["cluster"]["ca"]["crt"]) == CA.certificate
    assert made["cluster"]["token"] == TOKEN
    assert made["cluster"]["network"]["serviceSubnets"] == ["10.96.0.0/12"]
    assert made["machine"]["kubelet"]["image"].endswith(":v1.34.1")
    assert made["cluster"]["ca"]["key"] == made["machine"]["ca"]["key"] == ""


def test_patches_are_merged_and_documents_are_added() -> None:
    patch = "machine:\n  kubelet:\n    extraArgs: {node-labels: a=b}\n"
    more = "apiVersion: v1alpha1\nkind: HostnameConfig\n"
    made = created(config(strategicPatches=[patch, more]))
    assert made[0]["machine"]["kubelet"]["extraArgs"] == {
        "cloud-provider": "external",
        "node-labels": "a=b",
    }
    assert made[1]["kind"] == "HostnameConfig"


def test_a_whole_configuration_is_passed_unchanged() -> None:
    assert created(config(generateType="none", data="machine: {}\n")) == [{"machine": {}}]


@pytest.mark.parametrize("patch", ["a: [", "- a"])
def test_a_wrong_patch_is_refused(patch: str) -> None:
    with pytest.raises(Invalid, match="strategic patch"):
        talos_config.patched({}, [patch])


def test_the_data_secret_names_its_format() -> None:
    made = bootstrap_tokens.data_secret(config(), "c", "x", TOKEN, kind="talos")
    assert base64.b64decode(made["data"]["format"]) == b"talos"


def from_secrets(config: TalosConfig) -> dict[str, Any]:
    move = next_move(config, seen(secrets=TALOS_SECRETS))
    assert isinstance(move, CreateFromSecrets)
    (made,) = yaml.safe_load_all(configuration_from_secrets(move))
    assert isinstance(made, dict)
    return made


def test_a_control_plane_has_all_secrets_and_no_discovery_service() -> None:
    made = from_secrets(config(generateType="controlplane"))
    machine, cluster = made["machine"], made["cluster"]
    assert machine["type"] == "controlplane"
    assert b"ED25519 PRIVATE KEY" in base64.b64decode(machine["ca"]["key"])
    assert cluster["token"] == TALOS_SECRETS.bootstrap_token
    assert {"ca", "aggregatorCA", "etcd", "serviceAccount", "secretboxEncryptionSecret"} <= set(
        cluster
    )
    assert cluster["apiServer"] == {
        "image": "registry.k8s.io/kube-apiserver:v1.34.1",
        "certSANs": ["192.0.2.10"],
    }
    assert cluster["discovery"] == {"enabled": False}


def test_a_worker_of_talos_control_planes_has_no_private_keys() -> None:
    made = from_secrets(config())
    assert made["machine"]["ca"]["crt"] == talos_secrets.encoded(TALOS_SECRETS.talos.certificate)
    assert made["machine"]["ca"]["key"] == made["cluster"]["ca"]["key"] == ""
    assert made["machine"]["token"] == TALOS_SECRETS.trustd_token
    assert "etcd" not in made["cluster"]
