"""docs/reference/cli.md is rendered from the commands."""

from pathlib import Path

from moxwell.cli import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
AGAIN = "python -c 'from moxwell.cli import reference; print(reference.render(), end=\"\")'"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference.render(), f"make docs/reference/cli.md again: {AGAIN}"


def test_no_folder_of_ours_is_in_it() -> None:
    assert str(Path(reference.__file__).parents[3]) not in reference.render()
