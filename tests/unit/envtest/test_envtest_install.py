"""How a program's ``go.mod`` is made, where it is put, and that it is built once."""

from pathlib import Path
from typing import Any

import pytest

from envtest import gomod, locate
from envtest.__main__ import run
from envtest.install import EnvtestError, Go, install
from envtest.table import BY_NAME, NODE_TOOLS, PEERS, TOOLS, Tool

ONE = Tool("one", "example.com/one", "v1.2.3", "cmd/one")
STAGED = Tool("one", "example.com/one", "v1.2.3", siblings=(("*", "v0.2.3"),))
NAMED = Tool("one", "example.com/one", "v1.2.3", siblings=(("example.com/a", "v9.0.0"),))
PINNED = Tool("one", "example.com/one", "v1.2.3", pins=(("example.com/a", "v1.0.1"),))


def folder_of(path: str) -> dict[str, Any]:
    return {"Old": {"Path": path}, "New": {"Path": "./x"}}


def published(path: str, to: str, version: str) -> dict[str, Any]:
    return {"Old": {"Path": path}, "New": {"Path": to, "Version": version}}


@pytest.mark.parametrize(
    "tool, lines, want",
    [
        pytest.param(ONE, None, [], id="no replaces"),
        pytest.param(
            ONE,
            [published("example.com/a", "example.com/b", "v1.0.0")],
            [("example.com/a", "example.com/b", "v1.0.0")],
            id="a published replace is repeated",
        ),
        pytest.param(ONE, [folder_of("example.com/a")], [], id="a folder nobody stands in for"),
        pytest.param(
            STAGED,
            [folder_of("example.com/a")],
            [("example.com/a", "example.com/a", "v0.2.3")],
            id="every folder has a version",
        ),
        pytest.param(
            NAMED,
            [folder_of("example.com/a"), folder_of("example.com/b")],
            [("example.com/a", "example.com/a", "v9.0.0")],
            id="one folder has a version",
        ),
        pytest.param(
            PINNED,
            [published("example.com/a", "example.com/a", "v1.0.0")],
            [("example.com/a", "example.com/a", "v1.0.1")],
            id="a version that the registry does not serve is replaced",
        ),
    ],
)
def test_replaces(tool: Tool, lines: Any, want: list[tuple[str, str, str]]) -> None:
    assert list(gomod.replaces(tool, {"Replace": lines})) == want


def test_the_module_requires_only_the_program() -> None:
    text = gomod.text(STAGED, {"Go": "1.26", "Replace": [folder_of("example.com/a")]})
    assert "require example.com/one v1.2.3\n" in text
    assert "\texample.com/a => example.com/a v0.2.3\n" in text


def test_every_program_stands_once_in_the_table() -> None:
    assert len(BY_NAME) == len(TOOLS) + len(NODE_TOOLS) + len(PEERS)


def test_the_cache_can_be_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOXWELL_ENVTEST", str(tmp_path))
    assert locate.program("etcd").is_relative_to(tmp_path)
    assert "etcd" in locate.missing()


def fake_go(folder: Path, script: str) -> Go:
    path = folder / "go"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Go(str(path))


def test_what_is_there_is_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOXWELL_ENVTEST", str(tmp_path))
    there = locate.program("etcd")
    there.parent.mkdir()
    there.touch()
    said: list[str] = []
    assert install(fake_go(tmp_path, "exit 1"), BY_NAME["etcd"], say=said.append) == there
    assert said == []


def test_a_build_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("MOXWELL_ENVTEST", str(cache))
    broken = fake_go(tmp_path, "echo no such module >&2; exit 1")
    with pytest.raises(EnvtestError, match="no such module"):
        install(broken, BY_NAME["etcd"], say=lambda _: None)
    assert [p.name for p in cache.iterdir() if not p.name.endswith(".lock")] == []


def test_without_a_registry_it_says_so_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_go(tmp_path, "echo dial tcp: no such host >&2; exit 1")
    monkeypatch.setenv("MOXWELL_ENVTEST", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert run([]) == 1
    out = capsys.readouterr().out
    assert out.count("NO GO MODULE REGISTRY CAN BE REACHED") == 1
    assert out.count("building from") == 1
