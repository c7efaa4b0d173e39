"""Which version somebody means who asks for an upgrade."""

import pytest
from typer.testing import CliRunner

from moxwell.cli.cluster import app, version_matches
from moxwell.errors import Invalid

MEANT: dict[str, tuple[str, str | None, bool]] = {
    "as it is written everywhere": ("v1.35.0", "v1.35.0", True),
    "without the v": ("1.35.0", "v1.35.0", True),
    "another patch": ("v1.35.1", "v1.35.0", False),
    "a minor means its patches": ("v1.35", "v1.35.2", True),
    "also without the v": ("1.35", "v1.35.2", True),
    "a minor is not the ten that begin like it": ("v1.3", "v1.35.0", False),
    "nothing runs yet": ("v1.35.0", None, False),
    "nothing runs yet of a minor": ("v1.35", "", False),
}


@pytest.mark.parametrize(("asked", "runs", "meant"), MEANT.values(), ids=MEANT)
def test_the_version_that_version_matches(asked: str, runs: str | None, meant: bool) -> None:
    assert version_matches(asked, runs) is meant


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--size", "u1.meduim", "did you mean u1.medium?"),
        ("--version", "newest", "not a Kubernetes version"),
    ],
)
def test_create_refuses_before_it_connects(option: str, value: str, said: str) -> None:
    done = CliRunner().invoke(app, ["create", "c", option, value, "--name", "none-such"])
    assert isinstance(done.exception, Invalid)
    assert said in str(done.exception)
