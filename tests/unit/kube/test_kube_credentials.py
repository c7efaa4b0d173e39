"""Credentials: fetched when needed, kept while good, never shown."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from moxwell.kube import credentials
from moxwell.kube.credentials import (
    ApiIdentity,
    ExecCredentials,
    ExecPlugin,
    NoCredentials,
    SecretText,
    TokenFile,
)
from moxwell.testing.loop import START, LoopClock, run_virtual


def test_a_secret_is_not_shown() -> None:
    identity = credentials.token("t0p")
    assert "t0p" not in f"{identity} {identity!r} {identity.authorization}"
    assert not SecretText("")


def test_a_token_file_is_read_again_each_minute_and_after_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "token"

    async def story() -> list[str]:
        source = TokenFile(path, LoopClock())
        seen: list[str] = []

        async def look() -> None:
            seen.append((await source.identity()).authorization.reveal)

        path.write_text("one")
        await look()
        path.write_text("two")
        await look()
        await asyncio.sleep(61)
        await look()
        path.write_text("three")
        source.forget()
        await look()
        return seen

    assert run_virtual(story()) == ["Bearer one", "Bearer one", "Bearer two", "Bearer three"]


@pytest.mark.parametrize("text, message", [(None, "cannot read"), (" \n", "is empty")])
def test_a_token_file_without_token_is_reported(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(NoCredentials, match=message):
        run_virtual(TokenFile(path, LoopClock()).identity())


def script(folder: Path, lines: str) -> str:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def answer(**status: object) -> str:
    return msgspec.json.encode({"kind": "ExecCredential", "status": status}).decode()


async def test_a_plugin_gives_a_token_once_for_many(tmp_path: Path) -> None:
    count = tmp_path / "count"
    command = script(tmp_path, f"echo x >> {count}; echo '{answer(token='t0p')}'")
    source = ExecCredentials(
        ExecPlugin(command=command, env={"PATH": "/bin:/usr/bin"}), LoopClock()
    )
    found = await asyncio.gather(source.identity(), source.identity())
    assert list(found) == [ApiIdentity(SecretText("Bearer t0p"))] * 2
    assert count.read_text() == "x\n"
    source.forget()
    await source.identity()
    assert count.read_text() == "x\nx\n"


async def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    given = answer(clientCertificateData="CERT", clientKeyData="KEY")
    source = ExecCredentials(ExecPlugin(command=script(tmp_path, f"echo '{given}'")), LoopClock())
    assert await source.identity() == ApiIdentity(SecretText(""), "CERT", SecretText("KEY"))


async def test_a_plugin_knows_its_cluster_if_it_wants_to(tmp_path: Path) -> None:
    command = script(
        tmp_path, f"""echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; echo '{answer(token="t")}'"""
    )
    info = {"server": "https://a"}
    await ExecCredentials(ExecPlugin(command=command, cluster_info=info), LoopClock()).identity()
    message = msgspec.json.decode((tmp_path / "info").read_bytes())
    assert message["spec"] == {"interactive": False, "cluster": info}


class Wall:
    """A clock that shows a given time."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


async def test_a_plugin_is_asked_again_shortly_before_its_answer_expires(tmp_path: Path) -> None:
    count, clock = tmp_path / "count", Wall()
    given = answer(token="t", expirationTimestamp="2026-01-01T01:00:00Z")
    command = script(tmp_path, f"echo x >> {count}; echo '{given}'")
    source = ExecCredentials(ExecPlugin(command=command, env={"PATH": "/bin:/usr/bin"}), clock)
    for minute, runs in ((0, 1), (59, 1), (60, 2)):
        clock.at = datetime(2026, 1, 1, minute // 60, minute % 60, tzinfo=UTC)
        await source.identity()
        assert len(count.read_text().split()) == runs


@pytest.mark.parametrize(
    "lines, message",
    [
        pytest.param("echo no >&2; exit 3", "ended with 3: no", id="it fails"),
        pytest.param("echo hello", "no ExecCredential", id="it says something else"),
        pytest.param("echo '{}'", "without status", id="it says nothing"),
        pytest.param(
            "echo '{\"status\":{}}'", "neither a token nor a certificate", id="it is empty"
        ),
    ],
)
async def test_a_plugin_that_fails_is_reported(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(NoCredentials, match=message):
        await ExecCredentials(ExecPlugin(command=script(tmp_path, lines)), LoopClock()).identity()


async def test_an_absent_plugin_is_told_with_its_hint() -> None:
    with pytest.raises(NoCredentials, match=r"cannot run /absent: No such file.*; get it"):
        await ExecCredentials(
            ExecPlugin(command="/absent", install_hint="get it"), LoopClock()
        ).identity()
