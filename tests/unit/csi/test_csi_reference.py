"""The reference page and the examples match the code."""

from pathlib import Path

import pytest
import yaml

from moxwell.csi import reference
from moxwell.csi.driver import NAME
from moxwell.csi.parameters import VolumeParameters

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples/storageclasses").glob("*.yaml"))


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs/reference/storageclass.md").read_text() == reference.render()


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)
def test_an_example_storage_class_is_valid(file: Path) -> None:
    for row in yaml.safe_load_all(file.read_text()):
        if row["provisioner"] == NAME:
            VolumeParameters.parse(row["parameters"])
