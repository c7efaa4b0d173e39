"""Parsing of config drives and user-data on first boot."""

import base64
import gzip
import io
import json
from typing import Any

import pytest
import yaml
from pycdlib import PyCdlib

from moxwell.errors import Invalid
from moxwell.lab.guests.config_drive import ConfigDrive, read_config_drive
from moxwell.lab.guests.userdata import KubeadmJoin, find_join, read_user_data

JOIN = {
    "apiVersion": "kubeadm.k8s.io/v1beta3",
    "kind": "JoinConfiguration",
    "discovery": {
        "bootstrapToken": {
            "apiServerEndpoint": "127.0.0.1:6443",
            "token": "abcdef.0123456789abcdef",
            "caCertHashes": ["sha256:00"],
        }
    },
    "nodeRegistration": {
        "name": "{{ local_hostname }}",
        "kubeletExtraArgs": {"provider-id": "proxmox://'{{ ds.meta_data.instance_id }}'"},
    },
}
PATH = "/run/kubeadm/kubeadm-join-config.yaml"
COMMAND = (
    f"kubeadm join --config {PATH} && echo success > /run/cluster-api/bootstrap-success.complete"
)


def image(label: str = "cidata", **files: str) -> bytes:
    disc = PyCdlib()
    disc.new(interchange_level=3, rock_ridge="1.09", vol_ident=label)
    for number, (name, text) in enumerate(files.items()):
        data = text.encode()
        disc.add_fp(io.BytesIO(data), len(data), f"/F{number}.;1", rr_name=name.replace("_", "-"))
    out = io.BytesIO()
    disc.write_fp(out)
    disc.close()
    return out.getvalue()


def cloud_config(join: dict[str, Any], **file: str) -> str:
    config = {
        "write_files": [{"path": PATH, "content": yaml.safe_dump(join, width=999), **file}],
        "runcmd": [COMMAND],
    }
    return "## template: jinja\n#cloud-config\n" + yaml.safe_dump(config, width=999)


META = {"instance-id": "u-1", "local-hostname": "w1"}


def test_config_drive_is_parsed() -> None:
    config_drive = read_config_drive(
        image(
            user_data="#cloud-config\n{}",
            meta_data=json.dumps(META),
            network_config="network: {version: 2}",
        )
    )
    assert config_drive == ConfigDrive("#cloud-config\n{}", META, {"version": 2})
    assert config_drive.hostname == "w1"


@pytest.mark.parametrize(
    "medium, message",
    [
        pytest.param(b"\0" * 4096, "not an ISO", id="zeros"),
        pytest.param(image("other", user_data="x"), "labelled 'OTHER'", id="another label"),
        pytest.param(image(meta_data="{}"), "no user-data", id="no user data"),
        pytest.param(image(user_data="x", meta_data="- a"), "not a mapping", id="odd meta data"),
    ],
)
def test_invalid_medium(medium: bytes, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        read_config_drive(medium)


def join_in(user_data: str) -> KubeadmJoin | None:
    return find_join(read_user_data(ConfigDrive(user_data, META)))


def test_join_with_jinja_variables() -> None:
    join = join_in(cloud_config(JOIN))
    assert join is not None
    assert (join.node_name, join.endpoint, join.sentinel) == ("w1", "127.0.0.1:6443", True)
    assert join.kubelet_args == {"provider-id": "proxmox://'u-1'"}


def test_kubelet_args_as_a_list() -> None:
    args = [{"name": "node-labels", "value": "a=b"}]
    node = {"name": "w9", "kubeletExtraArgs": args}
    join = join_in(cloud_config(JOIN | {"nodeRegistration": node}))
    assert join is not None
    assert (join.node_name, join.kubelet_args) == ("w9", {"node-labels": "a=b"})


def test_ignition() -> None:
    plain = yaml.safe_dump(JOIN | {"nodeRegistration": {"name": "w1"}})
    body = base64.b64encode(plain.encode()).decode()
    script = base64.b64encode(COMMAND.encode()).decode()
    config = {
        "ignition": {"version": "2.3.0"},
        "storage": {
            "files": [
                {"path": PATH, "contents": {"source": f"data:;base64,{body}"}},
                {"path": "/etc/kubeadm.sh", "contents": {"source": f"data:;base64,{script}"}},
                {"path": "/etc/hostname", "contents": {"source": "data:,w1%0A"}},
            ]
        },
        "systemd": {
            "units": [{"name": "k.service", "contents": "[Service]\nExecStart=/etc/kubeadm.sh"}]
        },
    }
    join = join_in(json.dumps(config))
    assert join is not None
    assert join.node_name == "w1"


def test_ignition_envsubst() -> None:
    args = {"provider-id": "proxmox://'${COREOS_CUSTOM_INSTANCE_ID}'"}
    plain = yaml.safe_dump(JOIN | {"nodeRegistration": {"name": "w1", "kubeletExtraArgs": args}})
    script = f"envsubst < {PATH} > {PATH}.tmp\nmv {PATH}.tmp {PATH}\n{COMMAND}"
    files = {PATH: plain, "/etc/kubeadm.sh": script}
    files["/etc/proxmox-env"] = "COREOS_CUSTOM_INSTANCE_ID=north/100\n"
    sources = {
        path: f"data:;base64,{base64.b64encode(text.encode()).decode()}"
        for path, text in files.items()
    }
    found = [{"path": path, "contents": {"source": source}} for path, source in sources.items()]
    unit = {"name": "k.service", "contents": "[Service]\nExecStart=/etc/kubeadm.sh"}
    config = {"ignition": {"version": "2.3.0"}, "storage": {"files": found}}
    join = join_in(json.dumps(config | {"systemd": {"units": [unit]}}))
    assert join is not None
    assert join.kubelet_args == {"provider-id": "proxmox://'north/100'"}


def test_compressed_files() -> None:
    packed = base64.b64encode(gzip.compress(yaml.safe_dump(JOIN).encode())).decode()
    config = {
        "write_files": [{"path": PATH, "content": packed, "encoding": "gzip+base64"}],
        "runcmd": [COMMAND],
    }
    assert join_in("#cloud-config\n" + yaml.safe_dump(config)) is not None


@pytest.mark.parametrize(
    "user_data, message",
    [
        pytest.param("echo hello", "neither", id="a script"),
        pytest.param("#cloud-config\n{", "not YAML", id="broken YAML"),
        pytest.param("{", "not JSON", id="broken JSON"),
        pytest.param('{"a": 1}', "not Ignition", id="other JSON"),
        pytest.param(
            "## template: jinja\n#cloud-config\na: {{ b.c }}", "b.c", id="unknown variable"
        ),
        pytest.param(
            f"#cloud-config\nruncmd: ['{COMMAND}']", "does not write", id="no configuration"
        ),
        pytest.param(cloud_config({"kind": "Other"}), "no JoinConfiguration", id="other kind"),
        pytest.param(cloud_config(JOIN | {"discovery": {}}), "no API server", id="no endpoint"),
    ],
)
def test_invalid_user_data(user_data: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        join_in(user_data)


def test_user_data_without_join() -> None:
    assert join_in("#cloud-config\npackages: [nginx]") is None


TAINT = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
TALOS = {
    "machine": {"type": "worker"},
    "cluster": {
        "controlPlane": {"endpoint": "https://127.0.0.1:6443"},
        "token": "abcdef.0123456789abcdef",
        "ca": {"crt": base64.b64encode(b"the CA").decode()},
    },
}


@pytest.mark.parametrize(
    "kubelet, want, taints",
    [
        ({}, {}, ()),
        ({"extraConfig": {"providerID": "proxmox://r/1"}}, {"provider-id": "proxmox://r/1"}, ()),
        ({"extraArgs": {"provider-id": "b"}, "extraConfig": {"providerID": "a"}},
         {"provider-id": "b"}, ()),
        ({"extraConfig": {"registerWithTaints": [TAINT]}}, {}, (TAINT,)),
    ],
)  # fmt: skip
def test_a_talos_worker_has_the_provider_id_and_taints_of_its_kubelet_configuration(
    kubelet: dict[str, Any], want: dict[str, str], taints: tuple[dict[str, str], ...]
) -> None:
    config = TALOS | {"machine": {"type": "worker", "kubelet": kubelet}}
    found = find_join(read_user_data(ConfigDrive(yaml.safe_dump(config), META)))
    assert isinstance(found, KubeadmJoin)
    assert (found.node_name, found.ca) == ("w1", "the CA")
    assert (dict(found.kubelet_args), found.taints) == (want, taints)
