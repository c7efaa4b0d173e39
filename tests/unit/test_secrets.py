"""What cannot be read is not quoted: a mistake in a file must not carry a secret into an error."""

import traceback
from collections.abc import Callable

import pytest

from moxwell.bootstrap import talos
from moxwell.controllers.cloud import features
from moxwell.errors import MoxwellError
from moxwell.kube import kubeconfig
from moxwell.lab.guests.config_drive import ConfigDrive
from moxwell.lab.guests.control_plane import find_init
from moxwell.lab.guests.userdata import ParsedUserData, find_join, read_user_data
from moxwell.pve import config

FILE = "/run/kubeadm/kubeadm.yaml"
SECRET = "hunter2-not-to-be-shown"
BROKEN = {
    "an open quote": f'a: 1\nsecret: "{SECRET}\n',
    "a colon too many": f"a: 1\nsecret: {SECRET}: 5\n",
    "a tab": f"a: 1\nsecret: {SECRET}\n\tb: 2\n",
}


def init_with(text: str) -> object:
    return find_init(ParsedUserData({FILE: text}, (f"kubeadm init --config {FILE}",)))


def join_with(text: str) -> object:
    return find_join(ParsedUserData({FILE: text}, (f"kubeadm join --config {FILE}",)))


READERS: dict[str, Callable[[str], object]] = {
    "regions": config.parse,
    "features": features.parse,
    "kubeconfig": lambda text: kubeconfig.parse(text.encode()),
    "bootstrap data for Talos": lambda text: talos.merge(text.encode(), "m", "proxmox://r/100"),
    "user-data in the lab": lambda text: read_user_data(ConfigDrive("#cloud-config\n" + text)),
    "how a node begins a cluster in the lab": init_with,
    "how a node joins one in the lab": join_with,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_mistake_is_told_without_the_secret_beside_it(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(MoxwellError) as caught:
        read(text)
    assert "YAML" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_what_a_guest_is_told_prints_without_its_secrets() -> None:
    drive = ConfigDrive(f"#cloud-config\nwrite_files: [{{path: /token, content: {SECRET}}}]")
    assert SECRET not in repr(drive)
    assert read_user_data(drive).files == {"/token": SECRET}
    assert SECRET not in repr(read_user_data(drive))
