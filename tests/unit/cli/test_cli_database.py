"""``moxwell backup``, ``restore`` and ``repair`` on a stopped instance; findings of the doctor."""

import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from moxwell.app.state_dir import StateDir
from moxwell.cli import databases, doctor
from moxwell.cli.commands import make_app
from moxwell.embedded.apiserver.revision_log import RevisionLog
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.embedded.apiserver.storage.settings import StorageSettings
from moxwell.embedded.apiserver.storage.status import DatabaseStatus
from moxwell.errors import Busy, Missing


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDir:
    """A stopped instance with a management database and one of a tenant."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = StateDir("lab", {"XDG_STATE_HOME": str(tmp_path)})
    found.create()
    for path in (found.database, found.control_planes / "team" / "demo" / "store.db"):
        write(path, range(2, 12))
    return found


def write(path: Path, revisions: range) -> None:
    log = RevisionLog(path, StorageSettings())
    log.load("20260101T000000Z")
    for revision in revisions:
        log.commit([LogRow(revision, "configmaps", f"default/c{revision % 4}", False, b"value")])
    log.close()


def keys(path: Path) -> set[str]:
    log = RevisionLog(path, StorageSettings())
    rows = log.load("20260101T000000Z").rows
    log.close()
    return {row.key for row in rows}


def run(*args: str) -> Result:
    return CliRunner().invoke(make_app(args), args, catch_exceptions=False)


def test_all_databases_are_backed_up_listed_and_copied(state: StateDir, tmp_path: Path) -> None:
    made = run("backup", "--to", str(tmp_path / "copies"), "-o", "json")
    assert made.exit_code == 0
    copies = sorted(p.name.split("-")[0] for p in (tmp_path / "copies").iterdir())
    assert copies == ["management", "team_demo"]
    listed = run("backup", "--list", "-o", "json")
    assert listed.stdout == made.stdout
    assert '"revision": 11' in listed.stdout


def test_a_tenant_is_restored_and_the_replaced_database_is_kept(state: StateDir) -> None:
    run("backup", "--database", "demo")
    tenant = databases.get_database(state, "team/demo")
    (saved,) = tenant.backups.glob("*.db")
    write(tenant.path, range(12, 13))
    db = sqlite3.connect(tenant.path)
    with db:
        db.execute("DELETE FROM log WHERE key = 'default/c1'")
    db.close()
    done = run("restore", str(saved), "--database", "demo")
    assert "Restored 4 objects of revision 11" in done.stdout
    assert keys(tenant.path) == {f"default/c{n}" for n in range(4)}
    assert len(list(tenant.path.parent.glob("store.db.old-*"))) == 1


def test_a_repair_reports_what_is_lost_and_keeps_the_damaged_file(state: StateDir) -> None:
    db = sqlite3.connect(state.database)
    with db:
        db.execute("UPDATE log SET body = x'00' WHERE revision = 11")
    db.close()
    tried = run("repair", "--dry-run")
    assert "lost: configmaps default/c3 (revision 11)" in tried.stdout
    assert "team/demo: not damaged, 4 objects" in tried.stdout
    assert run("repair").exit_code == 0
    assert keys(state.database) == {"default/c0", "default/c1", "default/c2"}
    assert len(list(state.folder.glob("store.db.old-*"))) == 1
    assert "not damaged" in run("repair", "--database", "management").stdout
    assert "losses are accepted" in run("repair", "--accept-losses").stdout


def test_a_repair_can_use_an_older_content(state: StateDir) -> None:
    db = sqlite3.connect(state.database)
    with db:
        db.execute("UPDATE log SET body = x'00' WHERE revision = 11")
    db.close()
    done = run("repair", "--use-older", "--database", "management")
    assert "older content (revision 7): configmaps default/c3 (revision 11)" in done.stdout
    assert keys(state.database) == {f"default/c{n}" for n in range(4)}


@pytest.mark.parametrize("command", [("repair",), ("restore", "file.db")])
def test_a_running_instance_is_left_alone(state: StateDir, command: tuple[str, ...]) -> None:
    state.acquire()
    try:
        with pytest.raises(Busy, match="moxwell down"):
            run(*command)
    finally:
        state.release()


def test_an_unknown_database_is_refused_with_the_known_names(state: StateDir) -> None:
    with pytest.raises(Missing, match="management, team/demo"):
        databases.get_database(state, "other")


@pytest.mark.parametrize(
    "status, level, text",
    [
        pytest.param(DatabaseStatus(quota_bytes=100 << 20), "ok", "last backup: none", id="fine"),
        pytest.param(
            DatabaseStatus(quota_bytes=100, alarms=("NOSPACE",)), "wrong", "quota", id="full"
        ),
        pytest.param(
            DatabaseStatus(quota_bytes=100, used_bytes=90), "remark", "nearly", id="nearly full"
        ),
        pytest.param(DatabaseStatus(unreadable=("a b",)), "wrong", "damaged", id="damaged"),
        pytest.param(DatabaseStatus(lost=("a b",)), "remark", "lost from", id="lost"),
        pytest.param(DatabaseStatus(backup_error="no"), "wrong", "failed: no", id="backup"),
    ],
)
def test_the_doctor_reports_databases(status: DatabaseStatus, level: str, text: str) -> None:
    (found,) = doctor.check_database("demo", status)
    assert found.level == level
    assert text in found.what
