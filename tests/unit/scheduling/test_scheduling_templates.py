"""Template choice by VMID, name, tags and version; copies are allowed, ambiguity is an error."""

import pytest

from moxwell.scheduling.inventory_model import HostKey, Template
from moxwell.scheduling.templates import (
    TemplateAmbiguous,
    TemplateMissing,
    TemplateQuery,
    choose_templates,
    version,
)


def tpl(vmid: int, host: str = "a", name: str = "", tags: str = "", region: str = "r1") -> Template:
    return Template(HostKey(region, host), vmid, name, frozenset(tags.split()))


U = tpl(100, "a", "ubuntu", "ubuntu k8s-1.31.4")
U_ON_B = tpl(101, "b", "ubuntu", "ubuntu k8s-1.31.4")
NEWER = tpl(102, "a", "ubuntu-new", "ubuntu k8s-1.32.0 edge")
ELSEWHERE = tpl(100, "a", "ubuntu", "ubuntu k8s-1.31.4", "r2")
ALL = [U, U_ON_B, NEWER, ELSEWHERE]


@pytest.mark.parametrize(
    "want, found",
    [
        pytest.param(TemplateQuery(vmid=102), [NEWER], id="by id"),
        pytest.param(
            TemplateQuery(vmid=100, host="a"), [U, ELSEWHERE, U_ON_B], id="by id, with copies"
        ),
        pytest.param(
            TemplateQuery(vmid=102, host="gone"), [NEWER], id="by id, moved to another host"
        ),
        pytest.param(
            TemplateQuery(name="ubuntu"), [U, U_ON_B, ELSEWHERE], id="by name, a copy per host"
        ),
        pytest.param(
            TemplateQuery(tags=frozenset({"Ubuntu", "k8s-1.31.4"})),
            [U, U_ON_B, ELSEWHERE],
            id="by tags, exactly, case does not matter",
        ),
        pytest.param(
            TemplateQuery(tags=frozenset({"edge"}), policy="uniqueSubset"),
            [NEWER],
            id="unique subset",
        ),
        pytest.param(
            TemplateQuery(tags=frozenset({"ubuntu"}), policy="bestSubset"),
            [U, U_ON_B, ELSEWHERE],
            id="best subset: fewest other tags",
        ),
        pytest.param(
            TemplateQuery(kubernetes="v1.31.4"), [U, U_ON_B, ELSEWHERE], id="by Kubernetes version"
        ),
        pytest.param(TemplateQuery(kubernetes="1.32.0"), [NEWER], id="by version without v"),
    ],
)
def test_found(want: TemplateQuery, found: list[Template]) -> None:
    assert set(choose_templates(want, ALL)) == set(found)


@pytest.mark.parametrize(
    "want",
    [
        pytest.param(TemplateQuery(vmid=999), id="id"),
        pytest.param(TemplateQuery(name="debian"), id="name"),
        pytest.param(TemplateQuery(tags=frozenset({"ubuntu"})), id="exact tags are not a subset"),
        pytest.param(TemplateQuery(kubernetes="v1.30.0"), id="version"),
        pytest.param(TemplateQuery(kubernetes="latest"), id="no version at all"),
    ],
)
def test_missing_says_what_there_is(want: TemplateQuery) -> None:
    with pytest.raises(TemplateMissing, match="r1/a:100 ubuntu"):
        choose_templates(want, ALL)


def test_nothing_there_at_all() -> None:
    with pytest.raises(TemplateMissing, match="no templates"):
        choose_templates(TemplateQuery(vmid=1), [])


def test_two_different_ones_on_one_host_are_ambiguous() -> None:
    with pytest.raises(TemplateAmbiguous, match="100 and 102 on r1/a"):
        choose_templates(
            TemplateQuery(tags=frozenset({"ubuntu"}), policy="uniqueSubset"), [U, NEWER]
        )


@pytest.mark.parametrize(
    "text, parts",
    [("v1.31.4", (1, 31, 4)), ("1.31.4+rke2r1", (1, 31, 4)), ("1.31", (1, 31)), ("edge", None)],
)
def test_version(text: str, parts: tuple[int, ...] | None) -> None:
    assert version(text) == parts
