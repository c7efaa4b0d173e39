"""``moxwell up --config``: a person's own Proxmox, a program of its own, and its mishaps."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from moxwell.pve import preflight
from support import simulated_proxmox
from support.lab_inspector import PACE, eventually
from support.lab_instance import Instance, own_ports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("own")]
TOKEN, SECRET = "moxwell@pve!own", "5e5e5e5e-1111-4222-8333-444455556666"


@dataclass(frozen=True)
class Own:
    """A running Proxmox and how to reach it."""

    folder: Path
    urls: dict[str, str]

    def config(self, secret: str = SECRET, name: str = "proxmox.yaml") -> str:
        """The file that people have."""
        block: dict[str, Any] = {
            "region": "frankfurt", "urls": [f"{u}/api2/json" for u in self.urls.values()],
            "ca_file": "ca.pem", "token_id": TOKEN, "token_secret": secret,
        }  # fmt: skip
        file = self.folder / name
        file.write_text(yaml.safe_dump({"clusters": [block]}))
        return str(file)


def world(folder: Path) -> Path:
    """One region of the lab, with a token that has exactly the documented role."""
    tree = yaml.safe_load((resources.files("moxwell.lab") / "lab.yaml").read_text())
    region = next(r for r in tree["regions"] if r["name"] == "frankfurt")
    region["pace"] = PACE
    user = TOKEN.partition("!")[0]
    rights: dict[str, list[str]] = {}
    for need in preflight.needs(9):
        rights.setdefault(need.path, []).append(need.privilege)
    rows = [(f"Moxwell{n}", path, sorted(set(p))) for n, (path, p) in enumerate(rights.items())]
    region["access"] = {
        "users": [{"userid": user}],
        "tokens": [{"token": TOKEN, "secret": SECRET, "privsep": False}],
        "roles": [{"role": role, "privs": privs} for role, _, privs in rows],
        "acl": [{"path": path, "user": user, "role": role} for role, path, _ in rows],
    }
    file = folder / "world.yaml"
    file.write_text(yaml.safe_dump({"regions": [region]}))
    return file


@contextmanager
def proxmox(folder: Path, shift: float = 0) -> Iterator[Own]:
    program = Path(simulated_proxmox.__file__)
    command = [sys.executable, str(program), str(world(folder)), str(folder), str(shift)]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        urls = folder / "urls.json"
        eventually(lambda: urls.exists() or running.poll() is not None, "it listens")
        yield Own(folder, json.loads(urls.read_text()))
    finally:
        running.terminate()
        running.wait(120)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with proxmox(tmp_path_factory.mktemp("own")) as running:
        yield running


@pytest.fixture
def mine(tmp_path: Path) -> Iterator[Instance]:
    made = Instance(tmp_path, "mine")
    own_ports(made.state.folder)
    yield made
    made.run("down", check=False)


def complaint(mine: Instance, command: str, word: str) -> subprocess.CompletedProcess[str] | None:
    """What a command says of this; None as long as it speaks of other things."""
    done = mine.run(command, check=False)
    return done if done.returncode == 1 and word in done.stdout else None


def test_a_cluster_on_ones_own_proxmox_with_the_documented_role(own: Own, mine: Instance) -> None:
    said = mine.run("up", "--config", own.config())
    assert "This is a lab" not in said.stdout
    hundred = mine.run("cluster", "create", "large", "--nodes", "1000", check=False)
    assert hundred.returncode == 1
    assert "there is room for" in hundred.stderr
    mine.run("cluster", "create", "real", "--nodes", "2")
    rows = json.loads(mine.run("cluster", "list", "-o", "json").stdout)
    assert [(r["cluster"], r["nodes"], r["regions"]) for r in rows] == [
        ("real", "2/2", ["frankfurt"])
    ]
    refused = mine.run("down", "--purge", check=False)
    assert refused.returncode == 1
    assert "still have guests in your Proxmox" in refused.stderr
    mine.run("cluster", "delete", "real")
    assert "deleted" in mine.run("down", "--purge").stdout


def test_a_token_that_is_refused_and_then_mended(own: Own, mine: Instance) -> None:
    wrong = "00000000-1111-4222-8333-444455556666"
    refused = mine.run("up", "--config", own.config(wrong, "wrong.yaml"), check=False)
    assert refused.returncode == 1  # it runs, but no cluster can be made
    assert "login is refused" in refused.stderr
    result = eventually(lambda: complaint(mine, "doctor", "login is refused"), "doctor complains")
    assert "frankfurt" in result.stdout
    assert "Authentication failed" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr
    assert wrong not in result.stdout + result.stderr + mine.log()
    mine.run("down")
    mine.run("up", "--config", own.config())
    eventually(lambda: "frankfurt answers" in mine.run("doctor", check=False).stdout, "it answers")


def test_a_clock_that_nobody_set(mine: Instance, tmp_path: Path) -> None:
    folder = tmp_path / "skewed"
    folder.mkdir()
    with proxmox(folder, shift=600) as skewed:
        assert mine.run("up", "--config", skewed.config(), check=False).returncode == 1
        result = eventually(
            lambda: complaint(mine, "verify", "s ahead of ours"), "verify complains"
        )
        assert "timedatectl set-ntp true" in result.stdout
        mine.run("down")
