"""``moxwell template`` over HTTPS against a simulated Proxmox in a process of its own."""

import json
import lzma
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
import yaml

from moxwell.lab.proxmox.volumes.images import qcow2_bytes
from support.lab_inspector import PACE, eventually
from support.lab_instance import Instance
from support.real_nodes import SECRET, TOKEN, proxmox_data

pytestmark = [pytest.mark.slow]
ROOT = Path(__file__).parents[2]
REGION = "amsterdam"


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """A configuration file for one region of the lab."""
    tree = yaml.safe_load((resources.files("moxwell.lab") / "lab.yaml").read_text())
    region = next(r for r in tree["regions"] if r["name"] == REGION)
    region |= {"pace": {**PACE, "bandwidth": "40G"}, "guests": []}
    (tmp_path / "world.yaml").write_text(yaml.safe_dump({"regions": [region]}))
    command = [sys.executable, str(ROOT / "tests/support/simulated_proxmox.py")]
    running = subprocess.Popen([*command, str(tmp_path / "world.yaml"), str(tmp_path), "0"])
    try:
        urls = tmp_path / "urls.json"
        eventually(lambda: urls.exists() or running.poll() is not None, "Proxmox listens")
        block = {
            "region": REGION, "urls": [f"{u}/api2/json" for u in urls_of(tmp_path).values()],
            "ca_file": "ca.pem", "token_id": TOKEN, "token_secret": SECRET,
        }  # fmt: skip
        file = tmp_path / "moxwell.yaml"
        file.write_text(yaml.safe_dump({"clusters": [block]}))
        yield file
    finally:
        running.terminate()
        running.wait(60)


def urls_of(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "urls.json").read_text())
    return found


def guests(folder: Path) -> list[dict[str, object]]:
    url = next(iter(urls_of(folder).values()))
    rows = proxmox_data(url, folder / "ca.pem", "/api2/json/cluster/resources?type=vm")
    return [row for row in rows if row["vmid"]]


def isos(folder: Path) -> list[object]:
    url = next(iter(urls_of(folder).values()))
    place = "/api2/json/nodes/pve1/storage/cephfs/content"
    return [row["volid"] for row in proxmox_data(url, folder / "ca.pem", place)]


def test_templates_are_built_baked_listed_and_deleted(config: Path, tmp_path: Path) -> None:
    mine = Instance(tmp_path, "template")
    image = tmp_path / "debian.qcow2.xz"
    image.write_bytes(lzma.compress(qcow2_bytes(2 << 30)))
    where = ("--config", str(config), "--storage", "cephfs", "--storage", "ceph")
    version = ("--kubernetes", "v1.34.1")
    plain = mine.run("template", "import", "plain", str(image), *version, *where)
    assert "plain is ready" in plain.stdout
    words = ("template", "build", "baked", "debian-12", *version, "--bake", *where)
    baked = mine.run(*words)
    assert "installs the node software" in baked.stdout
    assert "baked is ready" in baked.stdout
    assert "importing" not in mine.run(*words).stdout
    rows = json.loads(
        mine.run("template", "list", "--config", str(config), "--output", "json").stdout
    )
    assert {(r["name"], r["kubernetes"]) for r in rows} == {
        ("plain", "v1.34.1"),
        ("baked", "v1.34.1"),
    }
    assert {row["template"] for row in guests(tmp_path)} == {1}
    for name in ("plain", "baked"):
        mine.run("template", "delete", name, "--yes", "--config", str(config))
    assert guests(tmp_path) == []
    assert isos(tmp_path) == []


def test_an_error_has_one_line_and_leaves_nothing(config: Path, tmp_path: Path) -> None:
    mine = Instance(tmp_path, "template")
    words = ("template", "build", "x", "debian-12", "--kubernetes", "v1.34.1", "--bake")
    more = ("--builder-address", "192.0.2.10", "--config", str(config))
    done = mine.run(*words, *more, check=False)
    assert done.returncode != 0
    assert "192.0.2.10/24" in done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr + done.stdout
    assert guests(tmp_path) == []
