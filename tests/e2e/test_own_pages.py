"""The pages for a person's own Proxmox, followed on a simulated new Proxmox of two hosts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from envtest.plugin import require
from support.new_proxmox import NewProxmox

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("own-pages")]
PAGES = ["howto-connect-proxmox.md", "howto-templates.md"]


@pytest.fixture
def proxmox(tmp_path: Path) -> Iterator[NewProxmox]:
    require("kubectl")
    made = NewProxmox(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.reader.leave()


def test_the_tutorial_from_nothing_to_nothing(proxmox: NewProxmox) -> None:
    assert proxmox.reader.follow("docs/tutorial-own-proxmox.md") > 8
    listed = proxmox.reader.shell("moxwell template list --config moxwell.yaml -o json")
    assert listed == (0, "[]\n")


@pytest.mark.parametrize("page", PAGES)
def test_a_how_to_can_be_followed(proxmox: NewProxmox, page: str) -> None:
    if page != "howto-connect-proxmox.md":
        proxmox.run("moxwell init --url https://pve1.example.org:8006 --region north")
    assert proxmox.reader.follow(f"docs/{page}") > 0
