"""Every write passes one place: ownership, dry run, audit record, count."""

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from moxwell.errors import Denied
from moxwell.pve import errors
from moxwell.pve.audit import REDACTED, AuditRecord, acting, redacted
from moxwell.pve.client import PveWriter
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.effects import DryRun, Effects, Owned
from moxwell.pve.ownership import Foreign, Mark
from moxwell.pve.regions import Region
from moxwell.pve.steps import Destroy, GuestRef
from moxwell.pve.targets import WriteTarget, target_of
from moxwell.pve.transport import FileUpload
from moxwell.pve.values import SecretValue
from moxwell.pve.write_metrics import export_writes
from moxwell.testing.loop import LoopClock
from moxwell.testing.scripted_transport import ScriptedTransport

SRC = Path(__file__).parents[3] / "src" / "moxwell"
UPID = "UPID:pve1:00000001:00000001:6AFA23F8:qmstart:100:u@pve:"
MARK = Mark("6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d")
VOLUME = "ceph:vm-9999-pvc-1"


class MemoryAudit:
    """Keeps the records."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def record(self, record: AuditRecord) -> None:
        self.records.append(record)


class Bench:
    """A writer over a scripted transport, with the records and counts of its effects."""

    def __init__(
        self, answer: Any = UPID, owned: Owned | None = None, *, dry_run: bool = False
    ) -> None:
        self.audit = MemoryAudit()
        self.effects = Effects(self.audit, dry_run=dry_run, clock=LoopClock())
        self.transport = ScriptedTransport(lambda *_: answer)
        self.pve = PveWriter(self.transport, self.effects, owned)

    @property
    def record(self) -> AuditRecord:
        (record,) = self.audit.records
        return record


async def test_a_write_is_recorded_with_actor_target_request_and_outcome() -> None:
    bench = Bench(owned=Owned("mark x", vmids=(100,)))
    with acting("infra.machine", "default/m1"):
        await bench.pve.qemu.start("pve1", 100, timeout_seconds=5)
    record = bench.record
    assert (record.controller, record.object) == ("infra.machine", "default/m1")
    assert (record.region, record.host, record.vmids) == ("r1", "pve1", (100,))
    assert (record.method, record.path) == ("POST", "/nodes/pve1/qemu/100/status/start")
    assert (record.params, record.proof) == ({"timeout": "5"}, "mark x")
    assert (record.outcome, record.error, record.upid) == ("ok", "", UPID)
    assert bench.effects.counts == {("r1", "ok"): 1}


async def test_a_read_is_not_recorded() -> None:
    bench = Bench(answer={"version": "8.4.1"})
    await bench.pve.version()
    assert bench.audit.records == []


async def test_a_refusal_of_proxmox_is_recorded_by_class_without_its_text() -> None:
    bench = Bench(answer=errors.Locked("hunter2 is locked"))
    with pytest.raises(errors.Locked):
        await bench.pve.qemu.configure("pve1", 100, {"cipassword": "hunter2", "cores": 2})
    assert (bench.record.outcome, bench.record.error) == ("failed", "Locked")
    assert bench.record.params == {"cipassword": REDACTED, "cores": "2"}
    assert "hunter2" not in repr(bench.record)


async def test_a_cancelled_write_is_recorded_as_interrupted() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    audit = MemoryAudit()
    pve = PveWriter(ScriptedTransport(lambda *_: forever()), Effects(audit))
    task = asyncio.create_task(pve.qemu.start("pve1", 100))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert [(r.outcome, r.error) for r in audit.records] == [("failed", "Interrupted")]


async def test_a_dry_run_sends_nothing_and_records_the_refusal() -> None:
    bench = Bench(dry_run=True)
    with pytest.raises(DryRun, match="DELETE /nodes/pve1/qemu/100 in region r1") as caught:
        await bench.pve.qemu.delete("pve1", 100)
    assert isinstance(caught.value, Denied)
    file = FileUpload.of("a.iso", b"x")
    with pytest.raises(DryRun):
        await bench.pve.storage.upload("pve1", "local", file)
    assert bench.transport.sent == []
    assert [(r.outcome, r.error) for r in bench.audit.records] == [("refused", "DryRun")] * 2
    assert bench.effects.counts == {("r1", "refused"): 2}


async def test_writes_are_exported_by_region_and_outcome() -> None:
    sent, refused = Bench(), Bench(dry_run=True)
    registry = CollectorRegistry()
    await sent.pve.qemu.start("pve1", 100)
    with pytest.raises(DryRun):
        await refused.pve.qemu.start("pve1", 100)
    sent.effects.counts.update(refused.effects.counts)
    export_writes(registry, sent.effects)
    counted = {
        sample.labels["outcome"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "moxwell_proxmox_writes_total"
    }
    assert counted == {"ok": 1.0, "refused": 1.0}


async def test_a_region_in_dry_run_refuses_steps() -> None:
    audit = MemoryAudit()
    answers = {"config": {"description": MARK.line}}
    transport = ScriptedTransport(lambda _, path, __: answers[path.rpartition("/")[2]])
    auth = TokenAuth("u@pve!t", SecretValue("s"))
    config = RegionConfig(region="r1", urls=("https://x",), auth=auth)
    region = Region(config, transport, LoopClock(), Effects(audit, dry_run=True))
    with pytest.raises(DryRun):
        await region.perform(Destroy(GuestRef("r1", "pve1", 100, MARK)), "owner")
    assert [method for method, *_ in transport.sent] == ["GET"]
    (record,) = audit.records
    assert (record.proof, record.vmids) == (MARK.line, (100,))


@pytest.mark.parametrize(
    ("owned", "allowed"),
    [
        (Owned("p", vmids=(100,)), True),
        (Owned("p", vmids=(101,)), False),
        (Owned("p", volumes=("100",)), False),
        (Owned("p"), False),
    ],
)
async def test_a_guest_that_is_not_owned_is_not_written_to(owned: Owned, allowed: bool) -> None:
    bench = Bench(owned=owned)
    if allowed:
        await bench.pve.qemu.stop("pve1", 100)
    else:
        with pytest.raises(Foreign):
            await bench.pve.qemu.stop("pve1", 100)
    assert bool(bench.transport.sent) == allowed
    assert bench.record.outcome == ("ok" if allowed else "refused")


@pytest.mark.parametrize(
    ("volume", "allowed"),
    [
        pytest.param("ceph:vm-9999-pvc-1", True, id="the same name"),
        pytest.param("dir:9999/vm-9999-pvc-1", True, id="in a directory"),
        pytest.param("dir:9999/vm-9999-pvc-1.raw", False, id="another extension"),
        pytest.param("ceph:vm-9999-pvc-12", False, id="a longer name"),
        pytest.param("ceph:vm-9999-pvc-1-b", False, id="a longer name after a hyphen"),
        pytest.param("ceph:xvm-9999-pvc-1", False, id="a longer name before it"),
        pytest.param("ceph:vm-100-disk-0", False, id="another volume"),
    ],
)
async def test_a_volume_is_owned_by_its_whole_name(volume: str, allowed: bool) -> None:
    bench = Bench(owned=Owned("name", volumes=("vm-9999-pvc-1",)))
    if allowed:
        await bench.pve.storage.delete("pve1", "ceph", volume)
    else:
        with pytest.raises(Foreign):
            await bench.pve.storage.delete("pve1", "ceph", volume)
    assert bool(bench.transport.sent) == allowed


async def test_the_default_audit_is_a_structured_log_event() -> None:
    structlog.contextvars.clear_contextvars()
    with capture_logs() as logs:
        await PveWriter(ScriptedTransport(lambda *_: UPID)).qemu.start("pve1", 100)
    (event,) = logs
    assert (event["event"], event["vmids"], event["outcome"]) == ("proxmox write", (100,), "ok")
    assert "volume" not in event  # empty fields are left out


@pytest.mark.parametrize(
    ("method", "path", "params", "target"),
    [
        ("POST", "/nodes/a/qemu", {"vmid": 7}, WriteTarget("a", (7,))),
        ("PUT", "/nodes/a/qemu/7/config", {}, WriteTarget("a", (7,))),
        ("POST", "/nodes/a/lxc/7/snapshot", {}, WriteTarget("a", (7,))),
        ("POST", "/nodes/a/qemu/9000/clone", {"newid": 7}, WriteTarget("a", (7,))),
        ("POST", "/nodes/a/qemu/7/move_disk", {"target-vmid": 8}, WriteTarget("a", (7, 8))),
        ("POST", "/nodes/a/qemu/7/move_disk", {}, WriteTarget("a", (7,))),
        ("POST", "/nodes/a/storage/s/content", {"filename": "f"}, WriteTarget("a", volume="f")),
        ("POST", "/nodes/a/storage/s/content/s%3Aold", {"target": "s:new"},
         WriteTarget("a", volume="s:new")),
        ("DELETE", "/nodes/a/storage/s/content/s:iso/x.iso", {},
         WriteTarget("a", volume="s:iso/x.iso")),
        ("POST", "/nodes/a/storage/s/download-url", {"filename": "f"},
         WriteTarget("a", volume="f")),
        ("POST", "/nodes/a/vzdump", {"vmid": "7"}, WriteTarget("a", (7,))),
        ("POST", "/cluster/replication", {"id": "7-0"}, WriteTarget(vmids=(7,))),
        ("DELETE", "/cluster/replication/7-0", {}, WriteTarget(vmids=(7,))),
        ("POST", "/nodes/a/replication/7-0/schedule_now", {}, WriteTarget("a", (7,))),
        ("POST", "/cluster/ha/resources", {"sid": "vm:7"}, WriteTarget(vmids=(7,))),
        ("PUT", "/cluster/ha/rules/near", {}, WriteTarget(name="near")),
        ("POST", "/cluster/ha/rules", {"rule": "near"}, WriteTarget(name="near")),
        ("PUT", "/pools/team", {"vms": "7,8"}, WriteTarget(vmids=(7, 8), name="team")),
        ("POST", "/pools", {"poolid": "team"}, WriteTarget(name="team")),
        ("POST", "/cluster/firewall/groups", {"group": "g"}, WriteTarget(name="g")),
        ("DELETE", "/cluster/firewall/groups/g/0", {}, WriteTarget(name="g")),
        ("POST", "/cluster/sdn/vnets/v/ips", {}, WriteTarget(name="v")),
        ("PUT", "/cluster/sdn", {}, WriteTarget(name="cluster/sdn")),
        ("PUT", "/access/acl", {}, WriteTarget(name="access/acl")),
    ],
)  # fmt: skip
def test_the_target_of_a_request(
    method: str, path: str, params: dict[str, Any], target: WriteTarget
) -> None:
    assert target_of(method, path, params) == target


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({"cores": 2, "onboot": True, "none": None}, {"cores": "2", "onboot": "1"}),
        ({"password": "x", "cipassword": "x", "token": "x"},
         {"password": REDACTED, "cipassword": REDACTED, "token": REDACTED}),
        ({"command": ("sh", "-c", "x"), "input-data": "x", "args": "-fw_cfg x"},
         {"command": REDACTED, "input-data": REDACTED, "args": REDACTED}),
        ({"content": "iso", "filename": "a.iso"}, {"content": "iso", "filename": "a.iso"}),
        ({"content": "#cloud-config"}, {"content": REDACTED}),
        ({"url": "https://u:p@host/a.img?sig=x"}, {"url": "https://host/a.img"}),
        ({"description": "x" * 300}, {"description": "(300 characters)"}),
        ({"dhcp-range": ("a", "b")}, {"dhcp-range": "a,b"}),
    ],
)  # fmt: skip
def test_secrets_are_redacted(params: dict[str, Any], shown: dict[str, str]) -> None:
    assert redacted(params) == shown


# ---------------------------------------------------------------------- who writes

WRITERS = ("PveWriter", "WriteCaller")
# Modules outside moxwell.pve that ask for a writer instead of performing a step, and why.
DIRECT_WRITERS = {
    "controllers/tenancy/tenant/controller.py",  # the answer is the secret of a new token
    "csi/disks.py",  # the answer of an allocation is the volume ID, which a step does not return
}


def modules_using(*attributes: str) -> set[str]:
    """Modules of the product that import moxwell.pve and use one of these attributes."""
    found = set()
    for path in sorted(SRC.rglob("*.py")):
        module, text = str(path.relative_to(SRC)), path.read_text()
        if module.startswith(("pve/", "testing/")) or "moxwell.pve" not in text:
            continue
        nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute)]
        if any(node.attr in attributes for node in nodes):
            found.add(module)
    return found


def test_the_direct_writers_are_known() -> None:
    assert modules_using("writer") == DIRECT_WRITERS


def test_no_product_code_makes_a_writer_without_ownership() -> None:
    makes = set()
    for path in sorted(SRC.rglob("*.py")):
        module = str(path.relative_to(SRC))
        text = path.read_text()
        if module.startswith("testing/") or not any(name in text for name in WRITERS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in WRITERS:
                makes.add(module)
    assert makes == {"onboarding/access.py", "pve/client.py", "pve/regions.py"}
