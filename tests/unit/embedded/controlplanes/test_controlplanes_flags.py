"""What programs are started with."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries import etcd_client, flags
from moxwell.embedded.controlplanes.binaries.etcd_members import EtcdMember, EtcdPorts
from moxwell.embedded.controlplanes.binaries.installed import Release
from moxwell.runtime.key import Key

RELEASE = Release("v1.36.3", Path("/k/api"), Path("/k/kcm"), Path("/k/sched"))
SEAT = flags.TenantLayout(
    folder=Path("/t"), host="127.0.0.1", port=6443, manager_port=2, scheduler_port=3,
    etcd_urls=("https://127.0.0.1:4",), etcd_prefix="/tenants/u1/",
)  # fmt: skip
MEMBER = EtcdMember(0, EtcdPorts(1, 2))
TENANT = HostedControlPlaneSpec(key=Key("team", "c1"), uid="u1", version="v1.36.3", replicas=1)


@pytest.mark.parametrize(
    "network, mask",
    [
        pytest.param("10.244.0.0/16", 24, id="the usual"),
        pytest.param("10.0.0.0/8", 24, id="a large one"),
        pytest.param("10.1.0.0/18", 24, id="64 nodes"),
        pytest.param("10.1.0.0/20", 26, id="64 smaller nodes"),
        pytest.param("10.1.0.0/24", 30, id="as small as it goes"),
    ],
)
def test_the_share_of_a_node(network: str, mask: int) -> None:
    assert flags.node_mask(network) == mask


@pytest.mark.parametrize(
    "network, address",
    [
        ("10.96.0.0/16", "10.96.0.1"),
        ("fd00:1::/112", "fd00:1::1"),
        ("10.0.0.0/24,fd::/112", "10.0.0.1"),
    ],
)
def test_the_address_of_the_api_inside(network: str, address: str) -> None:
    assert flags.first_address(network) == address


@pytest.mark.parametrize(
    "flag",
    [
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--etcd-prefix=/tenants/u1",
        "--etcd-compaction-interval=0",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
    ],
)
def test_the_api_is_as_kubeadm_and_kamaji_have_it(flag: str) -> None:
    assert flag in flags.apiserver(RELEASE, TENANT, SEAT)


@pytest.mark.parametrize(
    "flag",
    [
        "--cloud-provider=external",
        "--controllers=*,bootstrapsigner,tokencleaner",
        "--cluster-signing-key-file=/t/pki/ca.key",
        "--node-cidr-mask-size=24",
        "--use-service-account-credentials=true",
        "--bind-address=127.0.0.1",
    ],
)
def test_the_controllers_sign_for_nodes_and_leave_the_cloud_to_us(flag: str) -> None:
    assert flag in flags.controller_manager(RELEASE, TENANT, SEAT)


def test_every_word_is_said_once() -> None:
    for argv in (
        flags.apiserver(RELEASE, TENANT, SEAT),
        flags.controller_manager(RELEASE, TENANT, SEAT),
        flags.scheduler(RELEASE, SEAT),
        flags.etcd(Path("/k/etcd"), Path("/e"), MEMBER),
    ):
        names = [word.partition("=")[0] for word in argv]
        assert len(names) == len(set(names))


def test_no_tenant_passes_for_a_peer_of_etcd() -> None:
    argv = flags.etcd(Path("/k/etcd"), Path("/e"), MEMBER)
    assert "--trusted-ca-file=/e/pki/ca.crt" in argv
    assert "--peer-trusted-ca-file=/e/pki/peer-ca.crt" in argv
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(argv)
    assert all("0.0.0.0" not in word for word in argv)


@given(prefix=st.binary(min_size=1, max_size=6), key=st.binary(max_size=8))
def test_a_range_holds_exactly_the_keys_of_a_prefix(prefix: bytes, key: bytes) -> None:
    end = etcd_client.prefix_end(prefix)
    inside = key >= prefix and (end == b"\0" or key < end)
    assert inside == key.startswith(prefix)
