"""The order and the fields of manifests before anything is sent."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from moxwell.cli import manifests
from moxwell.errors import Invalid, Missing

FILES = {
    "binary": b"\xff\xfe",
    "empty": b"",
    "broken": b"a: ]",
    "twice": b"a: 1\na: 2",
    "deep": b"[" * 100_000,
    "date": b"a: 2024-13-45",
}


def doc(kind: str, name: str, api: str = "apps.cozystack.io/v1alpha1", **body: Any) -> Any:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **body}


def test_what_others_need_comes_first_and_the_rest_keeps_its_order() -> None:
    given = [
        doc("Kubernetes", "b"),
        doc("Tenant", "t2"),
        doc("Namespace", "n", "v1"),
        doc("Kubernetes", "a"),
        doc("Tenant", "t1"),
    ]
    names = [d["metadata"]["name"] for d in manifests.in_order(given)]
    assert names == ["n", "t2", "t1", "b", "a"]


def test_every_unknown_field_is_named_with_its_object() -> None:
    bad = doc("Kubernetes", "c1", spec={"versoin": "v1.34.1", "nodeGroup": []})
    with pytest.raises(Invalid) as found:
        manifests.check_fields([doc("Tenant", "t"), bad])
    assert str(found.value) == (
        "Kubernetes c1: spec.versoin: unknown field (did you mean version?); "
        "Kubernetes c1: spec.nodeGroup: unknown field (did you mean nodeGroups?)"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.yaml", "there is no file {}/missing.yaml"),
        ("folder", "{}/folder is a directory: name a file of it"),
        ("binary", "{}/binary is not text in UTF-8"),
        ("-", "standard input is not text in UTF-8"),
        ("empty", "{}/empty contains no objects"),
        ("broken", "{}/broken is not YAML in line 1: did not find expected node content"),
        ("twice", "{}/twice is not YAML in line 2: a key is there twice"),
        ("deep", "{}/deep is not YAML: more than 100 levels"),
        ("date", "{}/date, document 1: apiVersion is missing"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    for file, content in FILES.items():
        (tmp_path / file).write_bytes(content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe")))
    with pytest.raises((Invalid, Missing)) as found:
        manifests.read([Path("-") if name == "-" else tmp_path / name])
    assert str(found.value).startswith(said.format(tmp_path))
