"""
The Node service with real file systems: loop devices, mkfs, mount, fsck and resize.

Each volume is a sparse file on a loop device with the volume's WWN and serial. Tests that this
kernel does not allow (cryptsetup open, online resize of ext4) run in User-mode Linux.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from envtest import disks as programs
from envtest import kernel
from envtest.plugin import skip_here
from moxwell.csi.errors import DeviceMismatch, FailedPrecondition
from moxwell.csi.mounter import CommandFailed, SystemMounter, WrongKey
from moxwell.errors import Invalid
from support.loop_devices import (
    MODE,
    SIZE,
    NodeEnvironment,
    blocks,
    exists,
    get,
    head,
    put,
    run,
    shell,
    staged,
)

GROUP = "filesystems"
pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group(GROUP)]
Elsewhere = Callable[[], None]
LARGER = 768 << 20


class Dying(SystemMounter):
    """Dies while a new encrypted disk is being formatted."""

    def __init__(self, when: str) -> None:
        self._when = when

    async def make(self, device: str, kind: str, options: Sequence[str]) -> None:
        if self._when == "before mkfs":
            raise CommandFailed("killed")
        await super().make(device, kind, options)

    async def fill_luks(self, device: str) -> None:
        raise CommandFailed("killed")


@pytest.fixture(scope="module")
def other_kernel(request: pytest.FixtureRequest) -> Callable[[], kernel.Ran]:
    """Run the denied tests of this module in User-mode Linux."""

    @cache
    def run_scenario() -> kernel.Ran:
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

    return run_scenario


@pytest.fixture
def elsewhere(other_kernel: Callable[[], kernel.Ran], request: pytest.FixtureRequest) -> Elsewhere:
    """Pass if the calling test passes in User-mode Linux, because this kernel denies it."""

    def ask() -> None:
        if kernel.missing() or os.environ.get(kernel.INSIDE):
            skip_here("no device mapper or CAP_SYS_RESOURCE, and no User-mode Linux")
        ran = other_kernel()
        if ran.code is None:
            skip_here("User-mode Linux does not run here, and this kernel denies the test")
        test = request.node.nodeid.removesuffix(f"@{GROUP}")  # added by xdist
        assert f"PASSED {test}\n" in ran.output, ran.output[-4000:]

    return ask


@pytest.fixture
def env(tmp_path: Path) -> Iterator[NodeEnvironment]:
    yield from staged(tmp_path)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_volume_keeps_its_data_in_any_slot(env: NodeEnvironment, kind: str) -> None:
    async def scenario() -> None:
        env.loops.plug("other")
        env.loops.plug("a")
        await env.stage("a", kind)
        await env.publish("a", kind)
        put(env.pod("a") / "word", "kept")
        await env.publish("a", kind, only=True, to="reader")
        with pytest.raises(OSError, match="Read-only"):
            put(env.pod("reader") / "word", "lost")
        await env.unpublish("a", "reader")
        await env.unpublish("a")
        await env.unstage("a")
        env.loops.unplug("a")
        env.loops.unplug("other")
        env.loops.plug("b")  # uses the slot that a had
        env.loops.plug("a")
        await env.stage("b", kind)
        await env.stage("a", kind)
        assert get(env.at("a") / "word") == "kept"
        assert not exists(env.at("b") / "word")
        await env.unstage("a")
        await env.unstage("b")

    run(scenario)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_grows_online_and_at_the_next_stage(
    env: NodeEnvironment, kind: str, elsewhere: Elsewhere
) -> None:
    if kind == "ext4" and not programs.may_grow():
        elsewhere()
        return

    async def scenario() -> None:
        env.loops.plug("a")
        await env.stage("a", kind)
        before = await env.bytes_of("a")
        env.loops.grow("a", LARGER)
        await env.expand("a", kind)
        mounted = await env.bytes_of("a")
        assert mounted - before > 200 << 20
        await env.unstage("a")
        env.loops.grow("a", 2 * LARGER)
        await env.stage("a", kind)
        assert await env.bytes_of("a") - mounted > 600 << 20
        await env.unstage("a")

    run(scenario)


def test_storage_class_options_are_passed_to_mkfs(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        for name, kind in (("a", "ext4"), ("b", "xfs")):
            env.loops.plug(name)
            await env.stage(name, kind, blockSize="2048", inodeSize="512")
        assert "Block size:               2048" in shell("dumpe2fs", "-h", env.loops.devices["a"])
        assert "bsize=2048" in shell("xfs_info", str(env.at("b")))
        await env.unstage("a")
        await env.unstage("b")

    run(scenario)


def test_an_xfs_clone_can_be_mounted_with_its_source(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        env.loops.plug("a")
        await env.stage("a", "xfs")
        put(env.at("a") / "word", "of the source")
        await env.unstage("a")
        shell("cp", "--sparse=always", str(env.loops.file("a")), str(env.loops.file("clone")))
        env.loops.plug("clone")
        await env.stage("a", "xfs")
        await env.stage("clone", "xfs")
        assert get(env.at("clone") / "word") == "of the source"
        await env.unstage("a")
        await env.unstage("clone")

    run(scenario)


def test_repairable_damage_is_repaired_before_the_mount(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        device = env.loops.plug("a")
        await env.stage("a")
        put(env.at("a") / "word", "kept")
        await env.unstage("a")
        for what in ("ssv state 0", "ssv free_blocks_count 7"):
            shell("debugfs", "-w", "-R", what, device)
        await env.stage("a")
        assert get(env.at("a") / "word") == "kept"
        await env.unstage("a")
        shell("e2fsck", "-fn", device)

    run(scenario)


def test_unrepairable_damage_is_an_error(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        device = env.loops.plug("a")
        await env.stage("a")
        await env.unstage("a")
        shell("debugfs", "-w", "-R", "ssv state 2", device)
        shell("debugfs", "-w", "-R", "clri <2>", device)
        with pytest.raises(CommandFailed, match="fsck"):
            await env.stage("a")

    run(scenario)
    assert not env.at("a").is_mount()


def test_deleted_files_are_trimmed(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        env.loops.plug("a")
        await env.stage("a")
        put(env.at("a") / "large", "x" * (64 << 20))
        shell("sync", "-f", str(env.at("a")))
        full = blocks(env.loops.file("a"))
        shell("rm", str(env.at("a") / "large"))
        shell("sync", "-f", str(env.at("a")))
        await env.unstage("a")
        assert blocks(env.loops.file("a")) < full - (48 << 20)

    run(scenario)


def test_a_wrong_disk_is_never_mounted(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        env.loops.plug("a")
        env.loops.plug("b")
        await env.stage("a")
        await env.unstage("a")
        env.loops.serials["a"] = "somebody-else"
        with pytest.raises(DeviceMismatch, match="not its serial"):
            await env.stage("a")
        del env.loops.serials["a"]
        await env.stage("b")
        shell("mkdir", "-p", str(env.at("a")))
        shell("mount", env.loops.devices["b"], str(env.at("a")))  # a leftover mount
        with pytest.raises(DeviceMismatch, match="not /dev/loop"):
            await env.stage("a")
        with pytest.raises(DeviceMismatch):
            await env.publish("a")
        with pytest.raises(DeviceMismatch):
            await env.unstage("a")
        shell("umount", str(env.at("a")))
        await env.stage("a")
        shell("mkdir", "-p", str(env.pod("a")))
        shell("mount", "--bind", str(env.at("b")), str(env.pod("a")))
        with pytest.raises(DeviceMismatch):
            await env.publish("a")

    run(scenario)


def test_unknown_content_is_not_formatted(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        device = env.loops.plug("a")
        with env.loops.file("a").open("r+b") as disk:
            disk.seek(40_000)
            disk.write(b"the data of a program that needs no file system")
        shell("blockdev", "--flushbufs", device)
        with pytest.raises(DeviceMismatch, match="its content is not recognised"):
            await env.stage("a")
        await env.stage("a", block=True)

    run(scenario)


def test_a_block_volume_is_published_as_its_device(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        env.loops.plug("a")
        await env.stage("a", block=True)
        await env.publish("a", block=True, mode=MODE.SINGLE_NODE_SINGLE_WRITER)
        assert shell("blockdev", "--getsize64", str(env.pod("a"))).strip() == str(SIZE)
        with pytest.raises(FailedPrecondition, match="already"):
            await env.publish("a", block=True, mode=MODE.SINGLE_NODE_SINGLE_WRITER, to="second")
        await env.unpublish("a")
        assert not exists(env.pod("a"))

    run(scenario)


def test_an_encrypted_disk_needs_its_passphrase(env: NodeEnvironment) -> None:
    async def scenario() -> None:
        device = env.loops.plug("a")
        if programs.maps():
            await env.stage("a", key="right")
            await env.unstage("a")
        else:
            with pytest.raises(CommandFailed, match="device-mapper"):
                await env.stage("a", key="right")
        assert "crypto_LUKS" in shell("blkid", "-p", device)
        assert "aes-xts-plain64" in shell("cryptsetup", "luksDump", device)
        with pytest.raises(WrongKey, match="does not unlock"):
            await env.stage("a", key="wrong")
        with pytest.raises(Invalid, match="encrypted"):
            await env.stage("a")

    run(scenario)


@pytest.mark.parametrize("killed", ["never", "before mkfs", "before the label"])
def test_an_encrypted_disk_keeps_its_data_and_grows(
    env: NodeEnvironment, killed: str, elsewhere: Elsewhere
) -> None:
    if not programs.maps():
        elsewhere()
        return

    async def scenario() -> None:
        env.loops.plug("a")
        if killed != "never":
            env.stager.mounter = Dying(killed)
            with pytest.raises(CommandFailed, match="killed"):
                await env.stage("a", key="right")
            env.stager.mounter = SystemMounter()
        await env.stage("a", key="right")
        put(env.at("a") / "word", "hidden")
        before = await env.bytes_of("a")
        await env.unstage("a")
        assert b"hidden" not in head(env.loops.file("a"))
        env.loops.grow("a", LARGER)
        await env.stage("a", key="right")
        assert get(env.at("a") / "word") == "hidden"
        assert await env.bytes_of("a") > before
        await env.unstage("a")

    run(scenario)
