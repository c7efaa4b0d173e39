"""JSONPath of printer columns: label keys with dots."""

import pytest

from moxwell.embedded.apiserver import jsonpath

OBJECT = {"metadata": {"labels": {"cluster.x-k8s.io/name": "c1", "plain": "p"}}}
PATHS = {
    "quoted, dots escaped": (r".metadata.labels['cluster\.x-k8s\.io/name']", ["c1"]),
    "quoted": (".metadata.labels['cluster.x-k8s.io/name']", ["c1"]),
    "in double quotes": (r'.metadata.labels["cluster\.x-k8s\.io/name"]', ["c1"]),
    "plain": (".metadata.labels.plain", ["p"]),
    "dots escaped": (r".metadata.labels.cluster\.x-k8s\.io/name", ["c1"]),
    "not there": (r".metadata.labels['other\.io/name']", []),
}


@pytest.mark.parametrize(("path", "found"), PATHS.values(), ids=PATHS)
def test_labels_with_dots(path: str, found: list[str]) -> None:
    assert jsonpath.compile(path)(OBJECT) == found
