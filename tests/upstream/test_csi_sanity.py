"""csi-sanity against the controller and node services with the simulator."""

import asyncio
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from envtest.plugin import skip_here
from moxwell.clock import SystemClock
from moxwell.csi.identity import IdentityService, any_reachable
from moxwell.csi.metrics import CsiMetrics
from moxwell.csi.mounter import Mounter, SystemMounter
from moxwell.csi.server import CallHandlers, serving
from moxwell.testing.csi import CsiEnvironment, can_mount
from moxwell.testing.csi_files import FileMounter

pytestmark = [pytest.mark.genuine, pytest.mark.slow]

HURRY = 10
# Optional features that the driver does not offer.
ALLOWED_SKIPS = re.compile(
    r"GroupController|VolumeGroupSnapshot|StorageHealth|ListVolumeHealth"
    r"|snapshot with accessibility requirements"
)


class Hurried(SystemClock):
    """A clock that runs ten times as fast, so that simulated tasks do too."""

    def __init__(self) -> None:
        self._began = super().now()

    def now(self) -> datetime:
        return self._began + (super().now() - self._began) * HURRY

    def monotonic(self) -> float:
        return super().monotonic() * HURRY

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / HURRY)


@dataclass(frozen=True)
class Way:
    """The configuration of one csi-sanity run."""

    block: bool = False
    loops: bool = False
    storage: str = "local-lvm"
    snapshots: tuple[tuple[str, str], ...] = ()
    root: bool = False


async def run_scenario(program: Path, folder: Path, mounter: Mounter, way: Way) -> str:
    """Run csi-sanity and return its output."""
    clock = Hurried()
    env = CsiEnvironment(folder, clock=clock, hosts=1)  # csi-sanity requests no topology
    env.as_root = way.root
    calls = CallHandlers(clock, CsiMetrics(CollectorRegistry()))
    async with env.running(regions=("r1",)):
        node = env.node(101, mounter=mounter, loops=way.loops)
        identity = IdentityService("csi.moxwell.dev", lambda: any_reachable(env.driver.regions))
        handlers = (
            calls.handlers("Identity", identity),
            calls.handlers("Controller", env.controller),
            calls.handlers("Node", node),
        )
        async with serving(f"unix://{folder}/csi.sock", handlers):
            out = await _sanity(program, folder, way)
    left = (env.all_disks(), env.helper_vms())
    await env.close()
    assert left == ([], [])
    return out


async def _sanity(program: Path, folder: Path, way: Way) -> str:
    (folder / "params.yaml").write_text(yaml.safe_dump({"storage": way.storage}))
    (folder / "snapshots.yaml").write_text(yaml.safe_dump(dict(way.snapshots)))
    (folder / "mutable.yaml").write_text(yaml.safe_dump({"diskIOPS": "500", "backup": "true"}))
    process = await asyncio.create_subprocess_exec(
        str(program),
        f"--csi.endpoint=unix://{folder}/csi.sock",
        f"--csi.mountdir={folder}/m/target",
        f"--csi.stagingdir={folder}/m/staging",
        f"--csi.testvolumeparameters={folder}/params.yaml",
        f"--csi.testvolumemutableparameters={folder}/mutable.yaml",
        f"--csi.testsnapshotparameters={folder}/snapshots.yaml",
        "--csi.testvolumesize=1073741824",
        "--csi.testvolumeexpandsize=2147483648",
        f"--csi.testvolumeaccesstype={'block' if way.block else 'mount'}",
        "--csi.testnodevolumeattachlimit",
        "--ginkgo.v",
        "--ginkgo.no-color",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    (folder / "sanity.log").write_bytes(out)
    return out.decode()


def check(out: str) -> None:
    """Assert that nothing failed and only unsupported features were skipped."""
    tally = re.search(r"(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped", out)
    assert tally is not None, out[-4000:]
    failed = [line for line in out.splitlines() if "[FAIL]" in line]
    assert (int(tally[2]), failed) == (0, []), "\n".join(failed) + out[-3000:]
    skipped = re.findall(r"S \[SKIPPED\].*\n(.*)\n", out)
    odd = [name for name in skipped if not ALLOWED_SKIPS.search(name)]
    assert odd == []
    assert int(tally[1]) >= 75


WAYS = {
    "mounted, snapshots by LVM": Way(),
    "block, snapshots by Ceph": Way(block=True, storage="ceph"),
    "mounted, snapshots by copy of ZFS": Way(storage="local-zfs"),
    "block, snapshots by root": Way(block=True, root=True, snapshots=(("snapshotMode", "root"),)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_csi_sanity_passes_with_files(envtest_program, tmp_path, way) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "m").mkdir()
    program = envtest_program("csi-sanity")
    check(asyncio.run(run_scenario(program, tmp_path, FileMounter(), way)))


def test_csi_sanity_passes_with_loop_devices(envtest_program, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "m").mkdir()
    if not can_mount(tmp_path):
        skip_here("this machine may not mount loop devices")
    program = envtest_program("csi-sanity")
    check(asyncio.run(run_scenario(program, tmp_path, SystemMounter(), Way(loops=True))))
