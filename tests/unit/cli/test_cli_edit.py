"""``moxwell edit``: what the editor leaves becomes the change; a bad text is kept."""

from pathlib import Path

import pytest
import yaml

from moxwell.cli import edit
from moxwell.errors import Invalid

OBJECT = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "managedFields": [{"manager": "m"}]},
    "data": {"k": "v"},
}


def replacing(old: str, new: str) -> edit.Editor:
    def run(path: Path) -> None:
        assert path.stat().st_mode & 0o777 == 0o600
        path.write_text(path.read_text().replace(old, new))

    return run


def writing(text: str) -> edit.Editor:
    def run(path: Path) -> None:
        path.write_text(text)

    return run


def test_the_change_is_the_text_without_managed_fields() -> None:
    after = edit.edited(OBJECT, replacing("k: v", "k: w"))
    assert after == {**OBJECT, "metadata": {"name": "a"}, "data": {"k": "w"}}


def test_an_unchanged_or_empty_text_changes_nothing() -> None:
    assert edit.edited(OBJECT, replacing("x", "x")) is None
    assert edit.edited(OBJECT, writing("")) is None


@pytest.mark.parametrize(("old", "new"), [("data:", "data: ["), ("apiVersion: v1", "- a")])
def test_a_text_that_is_no_object_is_kept(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(Invalid, match="kept in") as raised:
        edit.edited(OBJECT, replacing(old, new))
    kept = Path(str(raised.value).rpartition(" ")[2])
    assert new in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_an_object_of_which_only_a_word_is_left_is_no_object() -> None:
    with pytest.raises(Invalid, match="not an object"):
        edit.edited(OBJECT, writing(yaml.safe_dump(["a"])))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("versoin", "version", ""),
        ("version", "versoin", "spec.versoin"),
        ("spec", "specs", "specs"),
    ],
)
def test_only_a_new_unknown_field_is_refused(old: str, new: str, path: str) -> None:
    before = {
        "apiVersion": "apps.cozystack.io/v1alpha1",
        "kind": "Kubernetes",
        "metadata": {"name": "a"},
        "spec": {old: "v1.35.0", "kept": 1} if path != "specs" else {},
    }
    text = yaml.safe_dump(before).replace(f"{old}:", f"{new}:")
    if not path:
        edit.check_fields(before, yaml.safe_load(text))
        return
    with pytest.raises(Invalid, match=f"^{path}: unknown field .did you mean {old}"):
        edit.check_fields(before, yaml.safe_load(text))


def test_an_editor_that_is_not_installed_is_named() -> None:
    with pytest.raises(Invalid, match="set EDITOR"):
        edit.run_editor({"EDITOR": "no-such-editor --wait"})(Path("x"))
    with pytest.raises(Invalid, match="ended with 1"):
        edit.run_editor({"KUBE_EDITOR": "false", "EDITOR": "true"})(Path("x"))
