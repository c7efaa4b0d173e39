"""
Restores the shared etcd from a snapshot: ``moxwell control-plane restore``.

``etcdutl snapshot restore`` makes the data of a new cluster with the first member; the further
members are added to it at the next start. Revisions continue far above those of the snapshot, so
that clients that have seen later ones notice that they must list again. The data that is replaced
is kept beside it. Nothing may run meanwhile.
"""

import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import msgspec

from moxwell.atomic_file import write_private
from moxwell.embedded.apiserver.storage import backup
from moxwell.embedded.apiserver.storage.backup import BackupFile
from moxwell.embedded.controlplanes.binaries.etcd_members import FIRST, EtcdPorts
from moxwell.embedded.controlplanes.supervision import process
from moxwell.embedded.ports import https_url
from moxwell.errors import Busy, Invalid, Missing

BUMP_REVISION = 1_000_000_000


def snapshots(folder: Path) -> tuple[BackupFile, ...]:
    """The snapshots of an etcd folder, the oldest first."""
    return backup.list_backups(folder / "backups")


def restore(folder: Path, snapshot: Path, etcdutl: Path, now: datetime) -> Path:
    """Replace the data of etcd; returns where the old data is kept."""
    if running := [f for f in process.run_files(folder) if process.find(f) is not None]:
        raise Busy(f"{running[0].stem} runs: stop the instance first (`moxwell down`)")
    if not snapshot.is_file():
        raise Missing(f"{snapshot} does not exist: `moxwell control-plane snapshots` lists them")
    ports = folder / "ports.json"
    if not ports.exists():
        raise Missing(f"{folder} has no etcd: nothing to restore")
    known = msgspec.json.decode(ports.read_bytes(), type=EtcdPorts)
    made = folder / "data.restored"
    shutil.rmtree(made, ignore_errors=True)
    _run_etcdutl(etcdutl, snapshot, made, https_url(known.host, known.peer))
    write_private(ports, msgspec.json.encode(msgspec.structs.replace(known, initial="")))
    return _exchange(folder, made, backup.stamp_of(now))


def _run_etcdutl(etcdutl: Path, snapshot: Path, target: Path, peer_url: str) -> None:
    words = (
        "snapshot",
        "restore",
        str(snapshot),
        f"--data-dir={target}",
        f"--name={FIRST}",
        f"--initial-cluster={FIRST}={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        "--initial-cluster-token=moxwell",
        f"--bump-revision={BUMP_REVISION}",
        "--mark-compacted",
    )
    done = subprocess.run([str(etcdutl), *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        lines = done.stderr.strip().splitlines()
        raise Invalid(f"{snapshot} cannot be restored: {lines[-1] if lines else done.returncode}")


def _exchange(folder: Path, made: Path, stamp: str) -> Path:
    """Keep the old data and forget the further members, whose data belongs to the old cluster."""
    kept = folder / f"replaced-{stamp}"
    kept.mkdir(mode=0o700)
    for data in sorted(folder.glob("data-*")):
        data.rename(kept / data.name)
    for record in folder.glob("ports-*.json"):
        record.unlink()
    if (folder / "data").exists():
        (folder / "data").rename(kept / "data")
    made.rename(folder / "data")
    return kept
