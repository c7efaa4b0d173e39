"""Bootstrap data from the templates of a node class."""

import pytest
import yaml

from moxwell.api.karpenter.proxmox import NodeKubeletConfiguration
from moxwell.bootstrap import node_templates
from moxwell.bootstrap.bootstrap_data import (
    BootstrapData,
    BootstrapIdentity,
    GuestLocation,
    nocloud_files,
)
from moxwell.bootstrap.network import GuestNetwork, InterfaceAddress, Nic
from moxwell.bootstrap.node_templates import InvalidNodeTemplate, NodeTemplateData
from moxwell.errors import Invalid

IDENTITY = BootstrapIdentity(
    "node-1",
    "proxmox://north/100",
    place=GuestLocation("north", "a", "pve1"),
    vmid=100,
    uuid="00000000-0000-4000-8000-000000000001",
)
NETWORK = GuestNetwork(
    (
        Nic(
            "net0",
            "BC:24:11:00:00:01",
            (
                InterfaceAddress("10.0.0.5", 24, "10.0.0.1"),
                InterfaceAddress("fd00::5", 64, "fd00::1"),
            ),
            dns=("10.0.0.2",),
            search=("example.com",),
        ),
    )
)


def files(**data: object) -> dict[str, bytes]:
    content = NodeTemplateData(**data)  # type: ignore[arg-type]
    value = node_templates.encode(content).encode()
    return nocloud_files(BootstrapData(value, node_templates.FORMAT), IDENTITY, NETWORK)


def test_every_template_has_the_root_of_the_provider() -> None:
    found = files(
        templates={
            "user-data": "{{ .Metadata.Hostname }} {{ .Values.a }} "
            "{{ .Kubernetes.BootstrapToken }} {{ .Resources.CPU }} "
            "{{ .Kubernetes.KubeletConfiguration.ProviderID }} "
            "{{ (index .Kubernetes.KubeletConfiguration.RegisterWithTaints 0).Key }}",
            "meta-data": "{{ .InstanceID }} {{ .InstanceUUID }} {{ .Zone }} {{ .NodeClass }}",
            "vendor-data": "{{ .InstanceType }}",
            "network-config": "{{ range .Interfaces }}{{ .Name }} {{ .MacAddr }} "
            "{{ index .Address4 0 }} {{ .Gateway4 }} {{ .Gateway6 }}{{ end }}",
        },
        values={"a": "b"},
        token="abcdef.0123456789abcdef",
        cpus=2,
        node_class="default",
        instance_type="c1.2VCPU-4GB",
        kubelet={"maxPods": 42},
        taints=({"key": "karpenter.sh/unregistered", "effect": "NoExecute"},),
    )
    assert found["user-data"].decode() == (
        "node-1 b abcdef.0123456789abcdef 2 proxmox://north/100 karpenter.sh/unregistered"
    )
    assert found["meta-data"] == b"100 00000000-0000-4000-8000-000000000001 pve1 default"
    assert found["vendor-data"] == b"c1.2VCPU-4GB"
    assert found["network-config"] == b"eth0 BC:24:11:00:00:01 10.0.0.5/24 10.0.0.1 fd00::1"


KUBELET = {
    "cpuManagerPolicy": "static",
    "cpuCFSQuota": False,
    "cpuCFSQuotaPeriod": "50ms",
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod",
    "imageGCHighThresholdPercent": 80,
    "imageGCLowThresholdPercent": 70,
    "shutdownGracePeriod": "30s",
    "allowedUnsafeSysctls": ["net.core.somaxconn"],
    "clusterDNS": ["10.96.0.10", "fd00::a"],
    "maxPods": 42,
    "failSwapOn": False,
}


def test_every_field_of_the_kubelet_reaches_a_template() -> None:
    assert set(KUBELET) == set(NodeKubeletConfiguration.__struct_encode_fields__)
    template = "{{ .Kubernetes.KubeletConfiguration | toYaml }}"
    found = yaml.safe_load(files(templates={"user-data": template}, kubelet=KUBELET)["user-data"])
    assert {name: found.get(name) for name in KUBELET} == KUBELET


def test_files_without_a_template_get_defaults() -> None:
    found = files(templates={"user-data": "#cloud-config\n"})
    assert sorted(found) == ["meta-data", "network-config", "user-data", "vendor-data"]
    meta = yaml.safe_load(found["meta-data"])
    assert meta["instance-id"] == "north/100"
    assert meta["local-hostname"] == "node-1"
    assert yaml.safe_load(found["network-config"])["version"] == 2


def test_a_mistake_names_file_line_and_column() -> None:
    with pytest.raises(InvalidNodeTemplate, match=r"^network-config: line 2, column \d+: "):
        files(templates={"network-config": "a\n{{ nope }}"})


def test_unreadable_data_is_not_repeated_in_the_error() -> None:
    data = BootstrapData(b'{"token": "s3cret"', node_templates.FORMAT)
    with pytest.raises(Invalid) as caught:
        nocloud_files(data, IDENTITY, NETWORK)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert "s3cret" not in repr(NodeTemplateData(token="s3cret", values={"a": "s3cret"}))
