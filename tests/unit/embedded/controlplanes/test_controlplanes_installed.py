"""Which releases are installed: by what programs say, side by side in folders."""

from pathlib import Path

import pytest

from moxwell.embedded.controlplanes.binaries import installed
from moxwell.embedded.controlplanes.binaries.installed import (
    PROGRAMS,
    BinariesMissing,
    InstalledReleases,
    ReleaseMissing,
    folders,
)


def install(folder: Path, version: str, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or PROGRAMS:
        path = folder / name
        path.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        path.chmod(0o755)


async def test_versions_lie_side_by_side(tmp_path: Path) -> None:
    install(tmp_path / "a", "v1.36.3")
    install(tmp_path / "a" / "v1.9.0", "v1.9.0")
    for name in PROGRAMS:
        install(tmp_path / "b" / f"{name}-v1.37.1", "v1.37.1", name)
    install(tmp_path / "b" / "v1.38.0", "v1.38.0", "kube-apiserver")  # not whole
    found = await InstalledReleases([tmp_path / "a", tmp_path / "b"]).releases()
    assert list(found) == ["v1.9.0", "v1.36.3", "v1.37.1"]
    assert found["v1.36.3"].scheduler == tmp_path / "a" / "kube-scheduler"
    assert await InstalledReleases([tmp_path / "a", tmp_path / "b"]).newest() == "v1.37.1"


async def test_a_folders_name_is_not_believed(tmp_path: Path) -> None:
    install(tmp_path / "v1.40.0", "v1.36.3")
    assert list(await InstalledReleases([tmp_path]).releases()) == ["v1.36.3"]


async def test_what_is_installed_later_is_found(tmp_path: Path) -> None:
    looking = InstalledReleases([tmp_path])
    assert await looking.releases() == {}
    install(tmp_path, "v1.36.3")
    assert list(await looking.releases()) == ["v1.36.3"]
    install(tmp_path, "v1.37.10")  # the same files, another content
    assert list(await looking.releases()) == ["v1.37.10"]


async def test_what_is_no_program_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path, "v1.36.3")
    (tmp_path / "v1.37.0").mkdir()
    (tmp_path / "v1.37.0" / "kube-apiserver").write_text("not executable")
    (tmp_path / "v1.38.0").mkdir()
    broken = tmp_path / "v1.38.0" / "kube-apiserver"
    broken.write_text("#!/nowhere\n")
    broken.chmod(0o755)
    assert list(await InstalledReleases([tmp_path]).releases()) == ["v1.36.3"]


@pytest.mark.parametrize(
    "asked, have, says",
    [
        pytest.param("v1.37.0", "v1.36.3", "(installed: v1.36.3)", id="another version"),
        pytest.param("1.37.0", "", "(no version is installed)", id="nothing at all"),
    ],
)
async def test_the_sentence_for_what_is_missing(
    tmp_path: Path, asked: str, have: str, says: str
) -> None:
    if have:
        install(tmp_path, have)
    with pytest.raises(ReleaseMissing) as refused:
        await InstalledReleases([tmp_path]).get(asked)
    said = str(refused.value)
    assert "Kubernetes v1.37.0 is not installed" in said
    assert says in said
    assert f"into {tmp_path}/v1.37.0" in said


async def test_nothing_installed_names_the_programs(tmp_path: Path) -> None:
    with pytest.raises(
        BinariesMissing, match=r"kube-apiserver, kube-controller-manager.*make envtest"
    ):
        await InstalledReleases([tmp_path]).newest()
    with pytest.raises(BinariesMissing, match=r"etcd is not installed .*control-plane-binaries=no"):
        InstalledReleases([tmp_path]).etcd()


@pytest.mark.parametrize(
    "choice, environ, wanted",
    [
        pytest.param("/k8s", {"PATH": "/bin"}, ["/k8s"], id="a folder, and only it"),
        pytest.param(
            "installed",
            {"PATH": "/bin:/usr/bin", "HOME": "/h"},
            ["/h/.cache/moxwell/envtest", "/bin", "/usr/bin"],
            id="where `make envtest` puts them, then PATH",
        ),
        pytest.param(
            "",
            {"MOXWELL_ENVTEST": "/envtest", "PATH": ""},
            ["/envtest"],
            id="the envtest that the environment names",
        ),
    ],
)
def test_where_programs_are_looked_for(
    choice: str, environ: dict[str, str], wanted: list[str]
) -> None:
    assert [str(folder) for folder in folders(choice, environ)] == wanted


async def test_a_version_that_timed_out_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine must not make a release disappear until the daemon restarts."""
    slow = tmp_path / "slow"
    slow.touch()
    for name in PROGRAMS:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n[ -e {slow} ] && exec sleep 60\necho Kubernetes v1.36.3\n")
        program.chmod(0o755)
    found = InstalledReleases([tmp_path])
    monkeypatch.setattr(installed, "VERSION_SECONDS", 0.2)
    assert await found.releases() == {}
    slow.unlink()
    monkeypatch.setattr(installed, "VERSION_SECONDS", 60)
    assert list(await found.releases()) == ["v1.36.3"]
