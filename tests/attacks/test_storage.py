"""
Damaged and full databases: nothing is served that was not written, and what is lost is named.

A database is written once; each example changes bytes of a copy and opens it.
"""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moxwell.api.requests import Request, UserInfo
from moxwell.embedded.apiserver.encryption.envelope import open_encryption
from moxwell.embedded.apiserver.revision_log import LoadedLog, RevisionLog
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.apiserver.storage import backup, repair, restore
from moxwell.embedded.apiserver.storage.errors import DatabaseDamaged, DiskFailed
from moxwell.embedded.apiserver.storage.rows import LogRow
from moxwell.embedded.apiserver.storage.settings import StorageSettings
from moxwell.testing.api_calls import CM, ApiClient, Object, configmap
from moxwell.testing.loop import START, LoopClock, run_virtual

STAMP = "20260101T000000Z"
Place = tuple[str, str]
KINDS = ("configmaps", "secrets", "machines.cluster.x-k8s.io")


@dataclass
class Written:
    """A database file and what was written to it."""

    folder: Path
    history: list[LogRow] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)  # the number of rows after each commit

    def state(self, rows: int | None = None) -> dict[Place, bytes]:
        """The objects after a number of rows."""
        found: dict[Place, bytes] = {}
        for row in self.history[:rows]:
            if row.deleted:
                found.pop((row.group_resource, row.key), None)
            else:
                found[row.group_resource, row.key] = row.body
        return found


def _rows(chance: random.Random, count: int) -> Iterator[LogRow]:
    alive: set[Place] = set()
    for revision in range(2, count + 2):
        place = (chance.choice(KINDS), f"ns{chance.randrange(3)}/o{chance.randrange(60)}")
        deleted = place in alive and chance.random() < 0.2
        alive = alive - {place} if deleted else alive | {place}
        size = chance.choice((40, 200, 900, 6000))
        yield LogRow(revision, *place, deleted, chance.randbytes(size))


def write(folder: Path, count: int) -> tuple[Written, RevisionLog]:
    chance = random.Random(7)
    made = Written(folder)
    log = RevisionLog(folder / "db", StorageSettings())
    log.load(STAMP)
    batch: list[LogRow] = []
    for row in _rows(chance, count):
        batch.append(row)
        if chance.random() < 0.4:
            log.commit(batch)
            made.history += batch
            made.batches.append(len(made.history))
            batch = []
        if row.revision == count // 2:
            log.compact_all()
    return made, log


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A database that was closed."""
    made, log = write(tmp_path_factory.mktemp("written"), 500)
    log.close()
    return made


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A database whose process was killed: its writes are in the write-ahead log."""
    made, log = write(tmp_path_factory.mktemp("written"), 60)
    folder = tmp_path_factory.mktemp("killed")
    for name in ("db", "db-wal", "db-acknowledged"):
        shutil.copy(made.folder / name, folder / name)
    log.close()
    made.folder = folder
    return made


def opened(path: Path) -> LoadedLog:
    log = RevisionLog(path, StorageSettings())
    try:
        return log.load(STAMP)
    finally:
        log.close()


def open_or_refuse(path: Path) -> LoadedLog | None:
    """Open a damaged file; None if it is refused with an error that says what to do."""
    try:
        return opened(path)
    except DiskFailed as error:
        if "moxwell repair" not in str(error):
            raise
        return None


def objects(loaded: LoadedLog) -> dict[Place, bytes]:
    return {(r.group_resource, r.key): r.body for r in restore.current_rows(loaded.rows)}


def check_truth(loaded: LoadedLog, truth: dict[Place, bytes]) -> None:
    """Every object is right, or named as unreadable; none is invented."""
    named = {(n.group_resource, n.key) for n in loaded.unreadable}
    found = objects(loaded)
    assert {p: b for p, b in found.items() if p not in named} == {
        p: b for p, b in truth.items() if p not in named
    }


def check_repaired(path: Path, written: Written) -> None:
    """A repair gives a healthy file; what it lacks is in its report, and nothing else changed."""
    truth = written.state()
    report = repair.repair(path, STAMP)
    loaded = opened(path)
    assert not loaded.rebuilt
    assert not loaded.unreadable
    found, lost = objects(loaded), {(n.group_resource, n.key) for n in report.lost}
    if report.proven:
        assert found == {p: b for p, b in truth.items() if p not in lost}
    else:  # reported: an object may have an older content
        assert found.items() <= {
            ((row.group_resource, row.key), row.body) for row in written.history
        }
    if report.damaged:
        assert report.kept is not None
        assert report.kept.exists()
        assert loaded.floor == loaded.revision > restore.BUMP


changes = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=64)),
    min_size=1,
    max_size=4,
)
EXAMPLES = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def damage(path: Path, parts: list[tuple[float, bytes]]) -> None:
    data = bytearray(path.read_bytes())
    for where, content in parts:
        at = int(where * len(data))
        data[at : at + len(content)] = content[: len(data) - at]
    path.write_bytes(data)


@EXAMPLES
@given(parts=changes)
def test_a_damaged_file_is_served_truly_or_refused(
    written: Written, tmp_path: Path, parts: list[tuple[float, bytes]]
) -> None:
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(written.folder / "db", folder / "db")
    damage(folder / "db", parts)
    loaded = open_or_refuse(folder / "db")
    if loaded is not None:
        check_truth(loaded, written.state())
    check_repaired(folder / "db", written)


@EXAMPLES
@given(parts=changes)
def test_a_damaged_write_ahead_log_loses_no_acknowledged_transaction(
    killed: Written, tmp_path: Path, parts: list[tuple[float, bytes]]
) -> None:
    folder = tmp_path / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(killed.folder, folder)
    damage(folder / "db-wal", parts)
    loaded = open_or_refuse(folder / "db")
    if loaded is None:
        check_repaired(folder / "db", killed)
        return
    assert loaded.revision - 1 == killed.batches[-1]
    check_truth(loaded, killed.state())


@pytest.mark.parametrize("cut", [1, 4000, 9000])
def test_a_log_that_lost_its_end_is_refused_and_repaired(
    killed: Written, tmp_path: Path, cut: int
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(killed.folder, folder)
    wal = folder / "db-wal"
    wal.write_bytes(wal.read_bytes()[:-cut])
    with pytest.raises(DatabaseDamaged, match="was acknowledged: run `moxwell repair`"):
        opened(folder / "db")
    check_repaired(folder / "db", killed)


def test_a_transaction_that_was_not_acknowledged_may_be_torn(
    killed: Written, tmp_path: Path
) -> None:
    """A power failure tears the last write before its client has an answer."""
    folder = tmp_path / "copy"
    shutil.copytree(killed.folder, folder)
    wal = folder / "db-wal"
    wal.write_bytes(wal.read_bytes()[:-1])
    (folder / "db-acknowledged").unlink()
    loaded = opened(folder / "db")
    assert loaded.revision - 1 == killed.batches[-2]
    check_truth(loaded, killed.state(killed.batches[-2]))


# Named cases, through the API


def spoil(path: Path, key: str) -> None:
    """Change one byte in the body of the newest row of an object."""
    db = sqlite3.connect(path)
    row = db.execute(
        "SELECT revision, body FROM log WHERE key = ? ORDER BY revision DESC", (key,)
    ).fetchone()
    body = bytes(row[1]).replace(b"v", b"w", 1)
    with db:
        db.execute("UPDATE log SET body = ? WHERE revision = ?", (body, row[0]))
    db.close()


async def with_damaged_owner(path: Path) -> None:
    """Store an owner and its dependent, and an unrelated object; then damage the owner."""
    async with EmbeddedApiServer(path=path, clock=LoopClock()) as server:
        api = ApiClient(server)
        owner = (await api.post(CM, configmap("owner", k="v"))).object
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
        }
        dependent = configmap("dependent", k="v")
        dependent["metadata"]["ownerReferences"] = [reference]
        await api.post(CM, dependent)
        await api.post("/api/v1/namespaces/default/secrets", secret("other"))
    spoil(path, "default/owner")


def secret(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


def test_a_damaged_object_is_named_and_everything_else_is_served(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "db"
        await with_damaged_owner(path)
        async with EmbeddedApiServer(path=path, clock=LoopClock()) as server:
            api = ApiClient(server)
            for refused in (
                await api.get(f"{CM}/owner"),
                await api.get(CM),
                await api.get(CM, watch="1"),
                await api.post(CM, configmap("owner")),
                await api.delete(f"{CM}/owner"),
            ):
                assert refused.status == 500
                assert "configmaps default/owner (revision" in refused.object["message"]
                assert "moxwell repair" in refused.object["message"]
            assert (await api.get(f"{CM}/dependent")).status == 200
            assert (await api.get("/api/v1/namespaces/kube-system/configmaps")).status == 200
            assert (await api.get("/api/v1/secrets")).status == 200
            assert (await api.post(CM, configmap("new"))).status == 201
            status = (await api.get("/moxwell/storage")).object
            assert [s.split(" (")[0] for s in status["unreadable"]] == ["configmaps default/owner"]
            assert "wrong checksum" in status["rebuilt"]

    run_virtual(story())


def test_dependents_of_a_lost_object_are_kept_until_the_loss_is_accepted(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "db"
        await with_damaged_owner(path)
        async with EmbeddedApiServer(path=path, clock=LoopClock()) as server:
            await asyncio.sleep(600)
            assert (await ApiClient(server).get(f"{CM}/dependent")).status == 200
        report = repair.repair(path, STAMP)
        assert [(n.group_resource, n.key) for n in report.lost] == [("configmaps", "default/owner")]
        async with EmbeddedApiServer(path=path, clock=LoopClock()) as server:
            api = ApiClient(server)
            await asyncio.sleep(600)
            assert (await api.get(f"{CM}/owner")).status == 404
            assert (await api.get(f"{CM}/dependent")).status == 200
            assert (await api.post("/moxwell/storage/accept-losses", {})).object["lost"] == []
            await api.patch(f"{CM}/dependent", {"metadata": {"labels": {"a": "b"}}})
            await asyncio.sleep(600)
            assert (await api.get(f"{CM}/dependent")).status == 404

    run_virtual(story())


def test_above_the_quota_writes_fail_as_with_etcd_and_deletions_make_room(tmp_path: Path) -> None:
    async def story() -> None:
        limits = StorageSettings(quota_bytes=3_000_000)
        async with EmbeddedApiServer(
            path=tmp_path / "db", clock=LoopClock(), storage=limits
        ) as server:
            api, count = ApiClient(server), 0
            while (
                made := await api.post(CM, configmap(f"c{count}", k="v" * 50_000))
            ).status == 201:
                count += 1
            assert made.object == {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "etcdserver: mvcc: database space exceeded",
                "code": 500,
            }
            assert (await api.get("/moxwell/storage")).object["alarms"] == ["NOSPACE"]
            assert b"moxwell_storage_alarm 1" in await metrics(server)
            assert len((await api.get(CM)).object["items"]) >= count
            for number in range(count // 2):
                assert (await api.delete(f"{CM}/c{number}")).status == 200
            assert (await api.get("/moxwell/storage")).object["alarms"] == []
            assert (await api.post(CM, configmap("again"))).status == 201

    run_virtual(story())


def test_a_server_above_its_quota_starts_and_serves(tmp_path: Path) -> None:
    """With objects that an earlier version stored as plain text and that would be stored again."""

    async def story() -> None:
        path, limits = tmp_path / "db", StorageSettings(quota_bytes=2_000_000)
        async with EmbeddedApiServer(path=path, clock=LoopClock(), storage=limits) as server:
            api, count = ApiClient(server), 0
            await api.post("/api/v1/namespaces/default/secrets", secret("other"))
            while (await api.post(CM, configmap(f"c{count}", k="v" * 50_000))).status == 201:
                count += 1
        keys = open_encryption(tmp_path / "keys", LoopClock().now())
        async with EmbeddedApiServer(
            path=path, clock=LoopClock(), storage=limits, encryption=keys
        ) as server:
            api = ApiClient(server)
            assert (await api.get("/moxwell/storage")).object["alarms"] == ["NOSPACE"]
            assert (await api.get("/api/v1/namespaces/default/secrets/other")).status == 200
            assert (await api.delete(f"{CM}/c0")).status == 200

    run_virtual(story())


async def metrics(server: EmbeddedApiServer) -> bytes:
    return (await server.handle(Request(method="GET", path="/metrics"))).body


def test_only_administrators_see_and_change_the_storage() -> None:
    async def story() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            tenant = ApiClient(server, UserInfo(name="mallory", groups=("system:authenticated",)))
            assert (await tenant.get("/moxwell/storage")).status == 403
            assert (await tenant.post("/moxwell/storage/backup", {})).status == 403
            assert (await tenant.get("/metrics")).status == 403

    run_virtual(story())


def test_watches_of_before_a_restore_get_410_and_list_again(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "db"
        async with EmbeddedApiServer(path=path, clock=LoopClock()) as server:
            api = ApiClient(server)
            await api.post(CM, configmap("old"))
            await api.post("/moxwell/storage/backup", {})
            await api.post(CM, configmap("new"))
            seen = (await api.get(CM)).object["metadata"]["resourceVersion"]
        (saved,) = backup.list_backups(tmp_path / "backups")
        restore.restore(saved.path, path, STAMP)
        async with EmbeddedApiServer(path=path, clock=LoopClock()) as server:
            api = ApiClient(server)
            events = await api.watch(CM, resourceVersion=seen)
            assert (await anext(events))["object"]["code"] == 410
            listed = (await api.get(CM)).object
            assert [i["metadata"]["name"] for i in listed["items"]] == ["old"]
            assert int(listed["metadata"]["resourceVersion"]) > restore.BUMP
            made = (await api.post(CM, configmap("next"))).object
            assert int(made["metadata"]["resourceVersion"]) > int(
                listed["metadata"]["resourceVersion"]
            )

    run_virtual(story())


def test_scheduled_backups_are_made_while_the_server_runs(tmp_path: Path) -> None:
    async def story() -> None:
        async with EmbeddedApiServer(path=tmp_path / "db", clock=LoopClock()) as server:
            for hour in range(48):
                await ApiClient(server).post(CM, configmap(f"c{hour}"))
                await asyncio.sleep(3600)
            found = backup.list_backups(tmp_path / "backups")
            assert [(b.made - START) // timedelta(hours=1) for b in found] == [18, 24, 30, 36, 42]
            content = backup.verify(found[-1].path)
            assert any(row.key == "default/c42" for row in content.rows.values())

    run_virtual(story())
