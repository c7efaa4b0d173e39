"""Secrets that never print, UPIDs that are validated, parameters as Proxmox reads them."""

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.errors import Bug, Invalid
from moxwell.pve import property_strings, values
from moxwell.pve.endpoints.access import NewToken
from moxwell.pve.guests import GuestConfig
from moxwell.pve.values import Blob, SecretValue, Upid

UPID = "UPID:pve1:000039FE:0007D90C:6AFA23F8:qmclone:9030:root@pam!tok:"


def test_a_secret_never_prints() -> None:
    token = NewToken("a@pve!t", SecretValue("hunter2"))
    texts = [repr(token), str(token), f"{token.secret}", repr(token.secret), f"{token!r}"]
    assert not any("hunter2" in text for text in texts)
    assert token.secret.reveal() == "hunter2"


def test_a_secret_cannot_be_serialized() -> None:
    with pytest.raises(Bug):
        pickle.dumps(SecretValue("x"))
    with pytest.raises(TypeError):
        msgspec.json.encode(NewToken("a@pve!t", SecretValue("x")))


def test_a_blob_prints_as_its_size() -> None:
    assert repr(Blob(b"password: hunter2")) == "Blob(17 bytes)"


def test_a_upid_is_parsed() -> None:
    upid = Upid(UPID)
    assert (upid.host, upid.type, upid.target, upid.user) == (
        "pve1", "qmclone", "9030", "root@pam!tok",
    )  # fmt: skip
    assert upid.started == 0x6AFA23F8
    assert upid == UPID


@pytest.mark.parametrize("text", ["", "UPID:", "OK", UPID[:-1], UPID + "x"])
def test_an_invalid_upid_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not a UPID"):
        Upid(text)


def test_parameters_become_form_fields() -> None:
    params = {"a": True, "b": False, "c": 1, "d": None, "e": "x y", "f": ["1", "2"], "g": 1.5}
    assert values.as_fields(params) == [
        ("a", "1"), ("b", "0"), ("c", "1"), ("e", "x y"), ("f", "1"), ("f", "2"), ("g", "1.5"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("segments", "path"),
    [
        (("nodes", "pve1", "qemu", 100), "/nodes/pve1/qemu/100"),
        (("pools", "a/b"), "/pools/a%2Fb"),
        (("access", "users", "joe@pve", "token", "t1"), "/access/users/joe@pve/token/t1"),
        (("tasks", UPID), "/tasks/" + UPID),
        (("x", "ä ?#"), "/x/%C3%A4%20%3F%23"),
    ],
)
def test_a_slash_in_a_path_segment_is_quoted(segments: tuple[str | int, ...], path: str) -> None:
    assert values.path(*segments) == path


@pytest.mark.parametrize(
    ("text", "size"), [("32G", 32 << 30), ("512M", 512 << 20), ("4096", 4096), ("1.5T", 3 << 39)]
)
def test_sizes(text: str, size: int) -> None:
    assert values.size_bytes(text) == size


def test_a_bad_size_is_refused() -> None:
    with pytest.raises(Invalid):
        values.size_bytes("many")


@pytest.mark.parametrize(
    ("key", "wanted", "current", "verdict"),
    [
        pytest.param("cores", "2", "2", True, id="the same number"),
        pytest.param("cores", "2", "4", False, id="another number"),
        pytest.param("cores", "2", None, False, id="nothing there"),
        pytest.param("net0", "virtio,bridge=vmbr0", "virtio=BC:24:11:00:00:01,bridge=vmbr0",
                     True, id="a NIC gets its MAC from Proxmox"),
        pytest.param("net0", "virtio,bridge=vmbr1", "virtio=BC:24:11:00:00:01,bridge=vmbr0",
                     False, id="another bridge"),
        pytest.param("net0", "e1000,bridge=vmbr0", "virtio=BC:24:11:00:00:01,bridge=vmbr0",
                     False, id="another model"),
        pytest.param("net0", "virtio,bridge=vmbr0,tag=5", "virtio=BC:24:11:00:00:01,bridge=vmbr0",
                     False, id="a VLAN that is missing"),
        pytest.param("scsi1", "fast:32", "fast:vm-100-disk-1,size=32G", True,
                     id="an allocation that was made"),
        pytest.param("scsi1", "fast:32,ssd=1", "fast:vm-100-disk-1,size=32G", False,
                     id="an allocation without its option"),
        pytest.param("scsi1", "slow:32", "fast:vm-100-disk-1,size=32G", False,
                     id="an allocation elsewhere"),
        pytest.param("scsi2", "fast:vm-9-pvc-1,backup=0", "fast:vm-9-pvc-1,backup=0,size=1G",
                     True, id="a volume with options"),
        pytest.param("ide2", "none,media=cdrom", "none,media=cdrom", True, id="an empty drive"),
        pytest.param("ide2", "iso:iso/a.iso,media=cdrom", "iso:iso/a.iso,media=cdrom,size=4K",
                     True, id="a medium, whose size Proxmox adds"),
        pytest.param("tags", "a;b", "b;a", True, id="tags in another order"),
        pytest.param("tags", "a;b", "a,b c", False, id="one tag more"),
        pytest.param("description", "one\ntwo", "one\ntwo\n", True, id="a trailing newline"),
        pytest.param("smbios1", "uuid=AB", "uuid=ab,base64=1", True, id="case of a UUID"),
        pytest.param("agent", "enabled=1", "enabled=on", True, id="on is 1"),
        pytest.param("cipassword", "x", "**********", True, id="a password cannot be compared"),
        pytest.param("scsi0", "fast:0,import-from=a:b", "fast:vm-1-disk-0,size=2G", True,
                     id="an import that was done"),
    ],
)  # fmt: skip
def test_desired_parts_are_contained_in_the_current_value(
    key: str, wanted: str, current: str | None, verdict: bool
) -> None:
    assert property_strings.satisfied(key, wanted, current) is verdict


_WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=8)


@given(_WORD, st.dictionaries(_WORD, _WORD, max_size=4))
def test_a_rendered_property_string_parses_and_satisfies_itself(
    first: str, parts: dict[str, str]
) -> None:
    text = property_strings.render(first, parts)
    assert property_strings.parse(text) == {"": first, **parts}
    assert property_strings.satisfied("scsi1", text, text)


def test_a_configuration_has_typed_properties() -> None:
    config = GuestConfig.of(
        {
            "name": "web", "memory": "2048", "cores": 2, "tags": "b;a", "agent": "1,fstrim=1",
            "smbios1": "uuid=6F0A2C1E-8D5F-4A7B-9C3D-0E1F2A3B4C5D,base64=1",
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "template": 1, "lock": "clone",
            "scsi0": "fast:base-1/vm-2-disk-0,size=32G", "ide2": "none,media=cdrom",
            "unused0": "fast:vm-2-disk-9", "protection": 1, "digest": "d", "nothing": None,
        }
    )  # fmt: skip
    assert config.name == "web"
    assert (config.memory_mib, config.cores, config.sockets) == (2048, 2, 1)
    assert config.tags == ("b", "a")
    assert config.uuid == "6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d"
    assert config.mac("net0") == "bc:24:11:00:00:01"
    assert config.mac("net1") == ""
    assert (config.template, config.protected, config.agent) == (True, True, True)
    assert set(config.disks) == {"scsi0", "ide2"}
    assert list(config.unused) == ["unused0"]
    assert list(config.nics) == ["net0"]
    assert config.slot_of("fast:base-1/vm-2-disk-0") == "scsi0"
    assert config.slot_of("fast:vm-2-disk") is None
    assert (config.size_bytes("scsi0"), config.size_bytes("ide2")) == (32 << 30, 0)
    assert "nothing" not in config
    assert config["digest"] == "d"
    assert "cores" in set(config)
