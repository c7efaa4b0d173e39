"""docs/reference/kinds.md matches the kinds."""

from pathlib import Path

import pytest

from moxwell.api import registry

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kinds.md"


def test_the_page_equals_the_output_of_render_kinds() -> None:
    advice = "run `moxwell render kinds > docs/reference/kinds.md`"
    assert PAGE.read_text() == registry.render_kinds(), advice


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
