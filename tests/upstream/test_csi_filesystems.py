"""The node service on real file systems: loop devices, the genuine mkfs, mount, fsck, resize.

Each volume is a sparse file behind a loop device that says the volume's WWN and serial. What this
machine's kernel denies (opening an encrypted disk, growing a mounted ext4) is played in a kernel of
its own, User-mode Linux.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from loops import MODE, SIZE, Stage, blocks, exists, get, head, put, run, shell, staged

from envtest import disks as programs
from envtest import kernel
from envtest.plugin import skip_here
from moxwell.csi.errors import FailedPrecondition, DeviceMismatch
from moxwell.csi.mounter import ProgramFailed, SystemMounter, WrongKey
from moxwell.errors import Invalid

GROUP = "filesystems"
pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group(GROUP)]
Elsewhere = Callable[[], None]
LARGER = 768 << 20


class Dying(SystemMounter):
    """Ends in the middle of a new encrypted disk."""

    def __init__(self, when: str) -> None:
        self._when = when

    async def make(self, device: str, kind: str, options: Sequence[str]) -> None:
        if self._when == "before mkfs":
            raise ProgramFailed("killed")
        await super().make(device, kind, options)

    async def fill_luks(self, device: str) -> None:
        raise ProgramFailed("killed")


@pytest.fixture(scope="module")
def other_kernel(request: pytest.FixtureRequest) -> Callable[[], kernel.Ran]:
    """This module once more, as far as this kernel denies it, in User-mode Linux."""

    @cache
    def play() -> kernel.Ran:
        root = request.config.rootpath
        pytest_here = (
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rA",
            "--color=no",
            "-p",
            "no:cacheprovider",
        )
        return kernel.run(*pytest_here, "-k", "grows or encrypted", str(request.path), folder=root)

    return play


@pytest.fixture
def elsewhere(other_kernel: Callable[[], kernel.Ran], request: pytest.FixtureRequest) -> Elsewhere:
    """Call it where this kernel denies a test: passes if the test passes in the other one."""

    def ask() -> None:
        if kernel.missing() or os.environ.get(kernel.INSIDE):
            skip_here("no device mapper or CAP_SYS_RESOURCE, and no User-mode Linux")
        ran = other_kernel()
        if ran.code is None:
            skip_here("User-mode Linux does not run here, and this kernel denies the test")
        test = request.node.nodeid.removesuffix(f"@{GROUP}")  # which xdist adds
        assert f"PASSED {test}\n" in ran.output, ran.output[-4000:]

    return ask


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    yield from staged(tmp_path)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_volume_keeps_its_data_wherever_it_is_plugged(stage: Stage, kind: str) -> None:
    async def story() -> None:
        stage.loops.plug("other")
        stage.loops.plug("a")
        await stage.stage("a", kind)
        await stage.publish("a", kind)
        put(stage.pod("a") / "word", "kept")
        await stage.publish("a", kind, only=True, to="reader")
        with pytest.raises(OSError, match="Read-only"):
            put(stage.pod("reader") / "word", "lost")
        await stage.unpublish("a", "reader")
        await stage.unpublish("a")
        await stage.unstage("a")
        stage.loops.unplug("a")
        stage.loops.unplug("other")
        stage.loops.plug("b")  # takes the place that a had
        stage.loops.plug("a")
        await stage.stage("b", kind)
        await stage.stage("a", kind)
        assert get(stage.at("a") / "word") == "kept"
        assert not exists(stage.at("b") / "word")
        await stage.unstage("a")
        await stage.unstage("b")

    run(story)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_grows_mounted_and_after_its_disk_grew_alone(
    stage: Stage, kind: str, elsewhere: Elsewhere
) -> None:
    if kind == "ext4" and not programs.may_grow():
        elsewhere()
        return

    async def story() -> None:
        stage.loops.plug("a")
        await stage.stage("a", kind)
        before = await stage.bytes_of("a")
        stage.loops.grow("a", LARGER)
        await stage.expand("a", kind)
        mounted = await stage.bytes_of("a")
        assert mounted - before > 200 << 20
        await stage.unstage("a")
        stage.loops.grow("a", 2 * LARGER)
        await stage.stage("a", kind)
        assert await stage.bytes_of("a") - mounted > 600 << 20
        await stage.unstage("a")

    run(story)


def test_options_of_the_class_reach_mkfs(stage: Stage) -> None:
    async def story() -> None:
        for name, kind in (("a", "ext4"), ("b", "xfs")):
            stage.loops.plug(name)
            await stage.stage(name, kind, blockSize="2048", inodeSize="512")
        assert "Block size:               2048" in shell("dumpe2fs", "-h", stage.loops.devices["a"])
        assert "bsize=2048" in shell("xfs_info", str(stage.at("b")))
        await stage.unstage("a")
        await stage.unstage("b")

    run(story)


def test_a_clone_in_xfs_is_mounted_beside_its_source(stage: Stage) -> None:
    async def story() -> None:
        stage.loops.plug("a")
        await stage.stage("a", "xfs")
        put(stage.at("a") / "word", "of the source")
        await stage.unstage("a")
        shell("cp", "--sparse=always", str(stage.loops.file("a")), str(stage.loops.file("clone")))
        stage.loops.plug("clone")
        await stage.stage("a", "xfs")
        await stage.stage("clone", "xfs")
        assert get(stage.at("clone") / "word") == "of the source"
        await stage.unstage("a")
        await stage.unstage("clone")

    run(story)


def test_damage_that_can_be_mended_is_mended_before_the_mount(stage: Stage) -> None:
    async def story() -> None:
        device = stage.loops.plug("a")
        await stage.stage("a")
        put(stage.at("a") / "word", "kept")
        await stage.unstage("a")
        for what in ("ssv state 0", "ssv free_blocks_count 7"):
            shell("debugfs", "-w", "-R", what, device)
        await stage.stage("a")
        assert get(stage.at("a") / "word") == "kept"
        await stage.unstage("a")
        shell("e2fsck", "-fn", device)

    run(story)


def test_damage_beyond_that_is_told_and_not_mounted(stage: Stage) -> None:
    async def story() -> None:
        device = stage.loops.plug("a")
        await stage.stage("a")
        await stage.unstage("a")
        shell("debugfs", "-w", "-R", "ssv state 2", device)
        shell("debugfs", "-w", "-R", "clri <2>", device)
        with pytest.raises(ProgramFailed, match="fsck"):
            await stage.stage("a")
        assert await stage.node._stager.mounted(str(stage.at("a"))) is None

    run(story)


def test_space_that_files_left_goes_back_to_the_storage(stage: Stage) -> None:
    async def story() -> None:
        stage.loops.plug("a")
        await stage.stage("a")
        put(stage.at("a") / "large", "x" * (64 << 20))
        shell("sync", "-f", str(stage.at("a")))
        full = blocks(stage.loops.file("a"))
        shell("rm", str(stage.at("a") / "large"))
        shell("sync", "-f", str(stage.at("a")))
        await stage.unstage("a")
        assert blocks(stage.loops.file("a")) < full - (48 << 20)

    run(story)


def test_a_wrong_disk_is_never_mounted(stage: Stage) -> None:
    async def story() -> None:
        stage.loops.plug("a")
        stage.loops.plug("b")
        await stage.stage("a")
        await stage.unstage("a")
        stage.loops.serials["a"] = "somebody-else"
        with pytest.raises(DeviceMismatch, match="not its serial"):
            await stage.stage("a")
        del stage.loops.serials["a"]
        await stage.stage("b")
        shell("mkdir", "-p", str(stage.at("a")))
        shell("mount", stage.loops.devices["b"], str(stage.at("a")))  # left over by somebody
        with pytest.raises(DeviceMismatch, match="not /dev/loop"):
            await stage.stage("a")
        with pytest.raises(DeviceMismatch):
            await stage.publish("a")
        with pytest.raises(DeviceMismatch):
            await stage.unstage("a")
        shell("umount", str(stage.at("a")))
        await stage.stage("a")
        shell("mkdir", "-p", str(stage.pod("a")))
        shell("mount", "--bind", str(stage.at("b")), str(stage.pod("a")))
        with pytest.raises(DeviceMismatch):
            await stage.publish("a")

    run(story)


def test_what_nobody_can_name_is_not_formatted(stage: Stage) -> None:
    async def story() -> None:
        device = stage.loops.plug("a")
        with stage.loops.file("a").open("r+b") as disk:
            disk.seek(40_000)
            disk.write(b"the data of a program that needs no file system")
        shell("blockdev", "--flushbufs", device)
        with pytest.raises(DeviceMismatch, match="nothing knows what is on it"):
            await stage.stage("a")
        await stage.stage("a", block=True)

    run(story)


def test_a_block_volume_is_its_device(stage: Stage) -> None:
    async def story() -> None:
        stage.loops.plug("a")
        await stage.stage("a", block=True)
        await stage.publish("a", block=True, mode=MODE.SINGLE_NODE_SINGLE_WRITER)
        assert shell("blockdev", "--getsize64", str(stage.pod("a"))).strip() == str(SIZE)
        with pytest.raises(FailedPrecondition, match="already"):
            await stage.publish("a", block=True, mode=MODE.SINGLE_NODE_SINGLE_WRITER, to="second")
        await stage.unpublish("a")
        assert not exists(stage.pod("a"))

    run(story)


def test_an_encrypted_disk_wants_its_own_key(stage: Stage) -> None:
    async def story() -> None:
        device = stage.loops.plug("a")
        if programs.maps():
            await stage.stage("a", key="right")
            await stage.unstage("a")
        else:
            with pytest.raises(ProgramFailed, match="device-mapper"):
                await stage.stage("a", key="right")
        assert "crypto_LUKS" in shell("blkid", "-p", device)
        assert "aes-xts-plain64" in shell("cryptsetup", "luksDump", device)
        with pytest.raises(WrongKey, match="does not open"):
            await stage.stage("a", key="wrong")
        with pytest.raises(Invalid, match="encrypted"):
            await stage.stage("a")

    run(story)


@pytest.mark.parametrize("killed", ["never", "before mkfs", "before the label"])
def test_an_encrypted_disk_keeps_its_data_and_grows(
    stage: Stage, killed: str, elsewhere: Elsewhere
) -> None:
    if not programs.maps():
        elsewhere()
        return

    async def story() -> None:
        stage.loops.plug("a")
        if killed != "never":
            stage.stager.mounter = Dying(killed)
            with pytest.raises(ProgramFailed, match="killed"):
                await stage.stage("a", key="right")
            stage.stager.mounter = SystemMounter()
        await stage.stage("a", key="right")
        put(stage.at("a") / "word", "hidden")
        before = await stage.bytes_of("a")
        await stage.unstage("a")
        assert b"hidden" not in head(stage.loops.file("a"))
        stage.loops.grow("a", LARGER)
        await stage.stage("a", key="right")
        assert get(stage.at("a") / "word") == "hidden"
        assert await stage.bytes_of("a") > before
        await stage.unstage("a")

    run(story)
