"""A killed mkfs on real disks: the next node plugin formats again and erases nothing else."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from moxwell.csi import format_marker
from moxwell.csi.mounter import MKFS, CommandFailed, SystemMounter
from moxwell.csi.mounter import run as run_program
from support.loop_devices import SIZE, NodeEnvironment, get, put, run, shell, staged

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("filesystems")]


@pytest.fixture
def env(tmp_path: Path) -> Iterator[NodeEnvironment]:
    yield from staged(tmp_path)


LAYOUTS = [
    pytest.param("ext4", 8 << 20, (), id="a very small ext4"),
    pytest.param("ext4", SIZE, (), id="a small ext4"),
    pytest.param("ext4", 10 << 30, (), id="an ext4 of ten GiB"),
    pytest.param("ext4", 30 << 30, ("-b", "2048", "-I", "512"), id="an ext4 of thirty GiB"),
    pytest.param("xfs", SIZE, (), id="a small xfs"),
    pytest.param("xfs", 100 << 30, ("-b", "size=1024"), id="an xfs of a hundred GiB"),
]


@pytest.mark.parametrize(("kind", "size", "options"), LAYOUTS)
def test_mkfs_never_overwrites_all_markers(
    env: NodeEnvironment, kind: str, size: int, options: tuple[str, ...]
) -> None:
    file = env.loops.file("a")
    with file.open("wb") as disk:
        disk.truncate(size)
    format_marker.mark(str(file))
    shell(f"mkfs.{kind}", *MKFS[kind], *options, str(file))
    assert format_marker.is_marked(str(file))
    format_marker.clear(str(file))
    assert not format_marker.is_marked(str(file))
    check = ("e2fsck", "-fn") if kind == "ext4" else ("xfs_repair", "-n", "-f")
    shell(*check, str(file))


class Limited(SystemMounter):
    """A mounter whose mkfs is killed when it writes beyond an offset."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    async def make(self, device: str, kind: str, options: Sequence[str]) -> None:
        format_marker.mark(device)
        await run_program("prlimit", f"--fsize={self._offset}", f"mkfs.{kind}", *MKFS[kind], device)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("offset", [0, 4096, 40_000, 1 << 20, 8 << 20, 70 << 20, 300 << 20])
def test_a_killed_mkfs_is_repeated(env: NodeEnvironment, kind: str, offset: int) -> None:
    async def scenario() -> None:
        file = str(env.loops.file("a"))
        with open(file, "wb") as disk:  # noqa: ASYNC230, PTH123
            disk.truncate(SIZE)
        with suppress(CommandFailed):  # all its writes are below
            await Limited(offset).make(file, kind, ())
        env.loops.plug("a")
        await env.stage("a", kind)
        put(env.at("a") / "word", "kept")
        await env.unstage("a")
        assert not format_marker.is_marked(file)
        await env.stage("a", kind)
        assert get(env.at("a") / "word") == "kept"
        await env.unstage("a")

    run(scenario)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_marked_disk_that_was_mounted_is_kept(env: NodeEnvironment, kind: str) -> None:
    async def scenario() -> None:
        device = env.loops.plug("a")
        format_marker.mark(device)
        shell(f"mkfs.{kind}", *MKFS[kind], device)
        shell("mkdir", "-p", str(env.at("a")))
        shell("mount", device, str(env.at("a")))  # another driver formats it in between
        put(env.at("a") / "word", "kept")
        shell("umount", str(env.at("a")))
        assert format_marker.is_marked(device)
        await env.stage("a", kind)
        assert get(env.at("a") / "word") == "kept"
        assert not format_marker.is_marked(device)
        await env.unstage("a")

    run(scenario)


def test_a_luks_header_without_key_slots_is_formatted_again(env: NodeEnvironment) -> None:
    device = env.loops.plug("a")
    format_marker.mark(device)
    quick = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
    made = ("luksFormat", "--batch-mode", "--type", "luks2", *quick)
    shell("cryptsetup", *made, "--key-file", "/proc/version", device)
    probe = SystemMounter().probe
    assert asyncio.run(probe(device)) == "crypto_LUKS"
    shell("cryptsetup", "luksKillSlot", "--batch-mode", device, "0")
    assert asyncio.run(probe(device)) == ""
    format_marker.clear(device)
    assert asyncio.run(probe(device)) == "crypto_LUKS"
