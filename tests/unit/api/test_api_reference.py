"""The reference of the kinds says what the kinds say."""

from pathlib import Path

import pytest

from moxwell.api import registry

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kinds.md"


def test_the_page_is_what_render_kinds_prints() -> None:
    told = "run `moxwell render kinds > docs/reference/kinds.md`"
    assert PAGE.read_text() == registry.render_kinds(), told


@pytest.mark.parametrize(
    "line",
    [
        "## Kubernetes `apps.cozystack.io/v1alpha1`",
        "| `spec.regions` | list of string |  |",
        "| MachineSet | cluster.x-k8s.io | v1beta2, v1beta1 |",
    ],
)
def test_the_page_holds(line: str) -> None:
    assert line in registry.render_kinds().splitlines()
