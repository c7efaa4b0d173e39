"""Konnectivity of control planes from binaries: command lines, configuration, objects. Pure."""

from pathlib import Path

import pytest
import yaml

from moxwell.config_file import InvalidConfig
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addresses import parse
from moxwell.embedded.controlplanes.binaries import flags, konnectivity
from moxwell.embedded.controlplanes.binaries.flags import TenantLayout
from moxwell.embedded.controlplanes.binaries.installed import Release
from moxwell.embedded.controlplanes.binaries.konnectivity import (
    KonnectivityLayout,
    KonnectivityPorts,
)
from moxwell.runtime.key import Key

PROXY = KonnectivityLayout(
    folder=Path("/t"),
    host="192.0.2.5",
    ports=KonnectivityPorts(agent=1, server=2, admin=3, health=4),
    program=Path("/bin/konnectivity-server"),
    image="mirror/agent:v1",
)
SPEC = HostedControlPlaneSpec(key=Key("a", "b"), uid="u", version="v1.36.3", replicas=1)
RELEASE = Release("v1.36.3", Path("/a"), Path("/m"), Path("/s"))


def layout(proxy: KonnectivityLayout | None) -> TenantLayout:
    return TenantLayout(
        folder=Path("/t"),
        host="192.0.2.5",
        port=6443,
        manager_port=1,
        scheduler_port=2,
        etcd_urls=("https://127.0.0.1:3",),
        etcd_prefix="/x/",
        konnectivity=proxy,
    )


def test_kube_apiserver_uses_the_proxy_only_if_there_is_one() -> None:
    with_proxy = flags.apiserver(RELEASE, SPEC, layout(PROXY))
    assert "--egress-selector-config-file=/t/egress-selector.yaml" in with_proxy
    assert set(with_proxy) - set(flags.apiserver(RELEASE, SPEC, layout(None))) == {with_proxy[-1]}


def test_only_agents_are_served_outside_of_this_machine() -> None:
    made = konnectivity.server_flags(PROXY)
    bound = {f for f in made if "-bind-address=" in f}
    assert "--agent-bind-address=192.0.2.5" in bound
    assert all(f.endswith("=127.0.0.1") for f in bound - {"--agent-bind-address=192.0.2.5"})
    assert len(bound) == 4
    assert not any("token" in f.partition("=")[2] for f in made)


def test_kube_apiserver_authenticates_with_a_certificate_of_a_ca_of_its_own() -> None:
    (selection,) = yaml.safe_load(konnectivity.egress_configuration(PROXY))["egressSelections"]
    assert selection["name"] == "cluster"
    tcp = selection["connection"]["transport"]["tcp"]
    assert tcp["url"] == "https://127.0.0.1:2"
    assert tcp["tlsConfig"]["caBundle"] == "/t/pki/konnectivity-ca.crt"
    assert "--server-ca-cert=/t/pki/konnectivity-ca.crt" in konnectivity.server_flags(PROXY)


def test_agents_run_on_every_node_with_the_chosen_image_and_a_token_for_the_server() -> None:
    agents = konnectivity.tenant_objects(PROXY)[-1]
    pod = agents["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "mirror/agent:v1"
    assert "--proxy-server-host=192.0.2.5" in container["args"]
    assert {"operator": "Exists"} in pod["tolerations"]
    (volume,) = pod["volumes"]
    token = volume["projected"]["sources"][0]["serviceAccountToken"]
    assert token["audience"] == konnectivity.AUDIENCE


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", None),
        ("konnectivity: false", None),
        ("konnectivity: true", ""),
        ("konnectivity: {image: 'm/a:1'}", "m/a:1"),
    ],
)
def test_the_setting(text: str, expected: str | None) -> None:
    assert parse(f"control_planes: {{{text}}}").konnectivity == expected


@pytest.mark.parametrize("text", ["agent", "{}", "{image: ''}", "{image: a, port: 1}"])
def test_a_wrong_setting_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="konnectivity"):
        parse(f"control_planes: {{konnectivity: {text}}}")
