"""What people get wrong, with the installed command: a sentence, what to do, a code, no loss."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envtest.plugin import skip_here

pytestmark = pytest.mark.xdist_group("e2e")
Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = str(Path(sys.executable).with_name("moxwell"))
CONFIG = """
clusters:
  - region: one
    url: https://127.0.0.1:%d/api2/json
    token_id: "a@pve!b"
    token_secret: s3cret-s3cret
"""


@pytest.fixture
def moxwell(tmp_path: Path) -> Iterator[Run]:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "s")}

    def run(*args: str, text: str = "", wrap: str = "") -> subprocess.CompletedProcess[str]:
        command = [COMMAND, *args]
        if wrap:
            command = ["bash", "-c", f'{wrap}; exec "$@"', "bash", *command]
        return subprocess.run(
            command, env=env, input=text, capture_output=True, text=True, check=False, timeout=600
        )

    yield run
    run("down", "--name", "bad", "--purge")


def said(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stdout + done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("{broken", ["line"], id="no YAML"),
        pytest.param("- a\n- b\n", ["mapping"], id="a list"),
        pytest.param("kind: Kubernetes\n", ["apiVersion is missing"], id="no version"),
        pytest.param("apiVersion: v1\nkind: Secret\n", ["metadata.name"], id="no name"),
        pytest.param("", ["contains no objects"], id="nothing"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "apply"])
def test_a_broken_manifest(moxwell: Run, command: str, text: str, words: list[str]) -> None:
    said(moxwell(command, "-f", "-", "--name", "bad", text=text), 1, "error:", *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("clusters: [", ["not YAML"], id="no YAML"),
        pytest.param("clusters: 3", ["clusters"], id="no list"),
        pytest.param(CONFIG % 1 + "    token_sekret: x\n", ["token_sekret"], id="a misspelt key"),
        pytest.param(CONFIG % 1 * 1 + "    zones: 3\n", ["zones"], id="zones that are none"),
    ],
)
def test_a_broken_configuration(moxwell: Run, tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "proxmox.yaml"
    file.write_text(text)
    said(moxwell("up", "--config", str(file), "--name", "bad"), 1, "error:", *words)
    assert not (tmp_path / "s").exists()  # nothing was begun


@pytest.mark.parametrize(
    ("data", "word"),
    [(b"", "is empty"), (b"\xff\xfe", "not text in UTF-8"), (b"regoins: []", "regions")],
)
def test_a_broken_world(moxwell: Run, tmp_path: Path, data: bytes, word: str) -> None:
    file = tmp_path / "world.yaml"
    file.write_bytes(data)
    said(moxwell("up", "--world", str(file), "--name", "bad"), 1, "error:", word)
    said(moxwell("up", "--world", str(tmp_path), "--name", "bad"), 1, "is a directory")
    assert not (tmp_path / "s").exists()  # nothing was begun


def test_files_that_are_not_there(moxwell: Run) -> None:
    said(moxwell("up", "--config", "none.yaml", "--name", "bad"), 1, "does not exist")
    said(moxwell("plan", "-f", "none.yaml", "--name", "bad"), 1, "there is no file none.yaml")


@pytest.mark.parametrize("command", ["render crds", "cluster sizes", "--help", "--version"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [COMMAND, *command.split()], env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
    )  # fmt: skip
    os.close(writer)
    assert done.stderr == ""


def test_wrong_usage_is_two(moxwell: Run) -> None:
    assert moxwell("cluster", "create").returncode == 2
    assert moxwell("nonsense").returncode == 2
    assert moxwell("delete").returncode == 2


def test_nobody_is_running(moxwell: Run) -> None:
    for command in (["status"], ["cluster", "list"], ["get", "nodes"]):
        said(moxwell(*command, "--name", "bad"), 75, "moxwell up")


def test_a_port_that_is_taken(moxwell: Run, tmp_path: Path) -> None:
    folder = tmp_path / "s" / "moxwell" / "bad"
    folder.mkdir(parents=True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (folder / "api.port").write_text(str(port))
        done = moxwell("up", "--no-demo", "--name", "bad")
        said(done, 75, f"port {port}", "taken by another program", "delete")
    assert moxwell("up", "--no-demo", "--name", "bad").returncode == 0


FULL = """
mount -t tmpfs -o size=300k tmpfs "$1" || exit 99
"$2" up --no-demo --name bad; echo "too small $?"
mount -o remount,size=60m "$1"
"$2" up --no-demo --name bad > /dev/null; echo "grown $?"
"$2" cluster create keep --nodes 0 --name bad; echo "kept $?"
dd if=/dev/zero "of=$1/filler" bs=64k
"$2" cluster create lost --nodes 0 --name bad --no-wait; echo "full $?"
"$2" doctor --name bad; echo "doctor $?"
rm "$1/filler"
"$2" cluster create later --nodes 0 --name bad; echo "later $?"
"$2" cluster list --name bad
"$2" down --name bad --purge
"""


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A small disk of its own, in a mount namespace that ends with the story."""
    probe = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", str(tmp_path)]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        skip_here("mounting in a namespace of one's own is not allowed here")
    disk = tmp_path / "disk"
    disk.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_STATE_HOME": str(disk)}
    done = subprocess.run(
        ["unshare", "-rm", "bash", "-c", FULL, "bash", str(disk), COMMAND], env=env, timeout=900,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    said = done.stdout
    for step in ("too small 75", "grown 0", "kept 0", "full 75", "doctor 1", "later 0"):
        assert step in said.splitlines(), said
    assert said.count("the disk is full; free space") >= 2
    assert "MiB are free" in said
    assert "Traceback" not in said
    listed = said[said.index("later 0") :]
    assert "keep" in listed
    assert "lost" not in listed


def test_a_folder_that_is_not_ours(moxwell: Run, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a file where a folder should be")
    done = moxwell("up", "--no-demo", "--name", "bad")
    said(done, 1, "cannot write to", str(tmp_path / "s"), "XDG_STATE_HOME")
    assert (tmp_path / "s").read_text()


def test_the_state_of_a_newer_moxwell_is_not_touched(moxwell: Run, tmp_path: Path) -> None:
    folder = tmp_path / "s" / "moxwell" / "bad"
    folder.mkdir(parents=True)
    (folder / "format").write_text("99\n")
    (folder / "store.db").write_bytes(b"of tomorrow")
    done = moxwell("up", "--no-demo", "--name", "bad")
    said(done, 1, "newer Moxwell", "format 99", "--name")
    assert (folder / "store.db").read_bytes() == b"of tomorrow"
    assert sorted(f.name for f in folder.iterdir()) == ["format", "store.db"]
    shutil.rmtree(folder)


def test_two_that_start_at_once_become_one(moxwell: Run, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        asked = [both.submit(moxwell, "up", "--no-demo", "--name", "bad") for _ in range(2)]
        done = [each.result() for each in asked]
    assert [d.returncode for d in done] == [0, 0], [d.stderr for d in done]
    log = (tmp_path / "s" / "moxwell" / "bad" / "daemon.log").read_text()
    assert log.count("daemon started") == 1


def test_a_proxmox_that_does_not_answer(moxwell: Run, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but nobody listens
        file = tmp_path / "proxmox.yaml"
        file.write_text(CONFIG % nobody.getsockname()[1])
        up = moxwell("up", "--config", str(file), "--name", "bad")
        assert up.returncode == 1  # it runs, but no cluster can be made
        assert "region one does not answer" in up.stderr
        done = moxwell("doctor", "--name", "bad")
        assert done.returncode == 1, done.stdout
        assert "region one does not answer" in done.stdout
        assert "s3cret" not in done.stdout
