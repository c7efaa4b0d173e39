"""``moxwell get`` as kubectl users type it, over the embedded API."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from moxwell.api.kinds import Resource
from moxwell.cli import get, kinds
from moxwell.cli.get import ObjectOutput
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.errors import Invalid, Missing
from moxwell.kube.client import Kube
from moxwell.kube.served_kinds import KindUnknown, of_object
from moxwell.testing.loop import LoopClock, run_virtual

MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
Printed = Callable[..., str]


async def with_objects(then: Callable[[Kube], Awaitable[None]]) -> None:
    async with EmbeddedApiServer(clock=LoopClock()) as store:
        kube = Kube(store)
        for space in ("blue", "red"):
            meta = {"name": space}
            await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}, SPACES)
            for name in ("both", space):
                meta = {"name": name, "namespace": space, "labels": {"colour": space}}  # type: ignore[dict-item]
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
                await kube.create(body, MAPS)
        await then(kube)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def ask(*words: str, o: str = "table", n: str = "", selector: str = "") -> str:
        async def then(kube: Kube) -> None:
            asked = get.parse_queries(await kube.discover(), words, n, selector)
            await get.print_objects(kube, asked, ObjectOutput(o))

        run_virtual(with_objects(then))
        return capsys.readouterr().out

    return ask


def names(text: str) -> list[str]:
    return [
        f"{o['metadata']['namespace']}/{o['metadata']['name']}" for o in json.loads(text)["items"]
    ]


def test_several_are_a_list_as_kubectl_prints_it(printed: Printed) -> None:
    tree = json.loads(printed("cm", o="json", n="red"))
    assert (tree["apiVersion"], tree["kind"], tree["metadata"]) == (
        "v1",
        "List",
        {"resourceVersion": ""},
    )
    assert {(o["apiVersion"], o["kind"]) for o in tree["items"]} == {("v1", "ConfigMap")}


def test_none_is_an_empty_list(printed: Printed) -> None:
    assert json.loads(printed("secrets", o="json", n="red"))["items"] == []


def test_one_by_name_is_itself(printed: Printed) -> None:
    tree = yaml.safe_load(printed("configmap", "red", o="yaml", n="red"))
    assert (tree["kind"], tree["metadata"]["name"]) == ("ConfigMap", "red")


WORDS: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "names of one namespace": (
        ("cm",),
        {"n": "red", "selector": "colour"},
        "configmap/both\nconfigmap/red\n",
    ),
    "by kind and name": (("cm/red", "ns/blue"), {}, "configmap/red\nnamespace/blue\n"),
    "by several names": (("cm", "blue", "red"), {}, "configmap/blue\nconfigmap/red\n"),
    "by labels": (("configmaps",), {"selector": "colour=blue"}, "configmap/blue\nconfigmap/both\n"),
}


@pytest.mark.parametrize(("words", "more", "said"), WORDS.values(), ids=WORDS)
def test_names(printed: Printed, words: tuple[str, ...], more: dict[str, str], said: str) -> None:
    assert printed(*words, o="name", **more) == said


def test_everywhere_is_what_is_meant_without_a_namespace(printed: Printed) -> None:
    assert {"blue/both", "red/both", "red/red"} <= set(names(printed("cm", o="json")))


def test_tables_name_the_namespace_and_wide_ones_show_more(printed: Printed) -> None:
    plain, wide = printed("cm,ns", n="red"), printed("deployments,cm", o="wide", n="red")
    assert plain.splitlines()[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert "Active" in plain
    assert "red" in wide


ERRORS: dict[str, tuple[tuple[str, ...], dict[str, str], type[Exception], str]] = {
    "a kind nobody knows": (("nonsense",), {}, KindUnknown, "serves no kind 'nonsense'"),
    "a kind with a typing mistake": (
        ("configmpas",),
        {},
        KindUnknown,
        r"'configmpas' \(did you mean configmaps\?\)",
    ),
    "a name nobody has": (("cm", "green"), {"o": "json"}, Missing, "no ConfigMap green in any"),
    "a name in two namespaces": (("cm", "both"), {"o": "json"}, Invalid, "select one with -n"),
    "both ways of naming": (("cm/red", "blue"), {}, Invalid, "write every object as KIND/NAME"),
    "named and selected": (("cm", "red"), {"selector": "a=b"}, Invalid, "not both"),
    "a table of what is not there": (("cm", "green"), {"n": "red"}, Missing, "in namespace red"),
}


@pytest.mark.parametrize(("words", "more", "error", "said"), ERRORS.values(), ids=ERRORS)
def test_bad_words(
    printed: Printed,
    words: tuple[str, ...],
    more: dict[str, str],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        printed(*words, **more)


def test_as_list_holds_anything() -> None:
    items: list[dict[str, Any]] = [{"kind": "A"}, {"kind": "B"}]
    assert get.as_list(items)["items"] == items


DOCUMENTS = {
    "a typing mistake": ({"apiVersion": "v1", "kind": "ConfgMap"}, "did you mean ConfigMap?"),
    "another version": ({"apiVersion": "v2", "kind": "ConfigMap"}, "but v1 is"),
}


@pytest.mark.parametrize(("doc", "said"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_kind_of_a_file_that_is_not_served(doc: dict[str, str], said: str) -> None:
    async def then(kube: Kube) -> None:
        with pytest.raises(KindUnknown) as error:
            of_object(await kube.discover(), doc)
        assert said in str(error.value)

    run_virtual(with_objects(then))


def test_an_object_in_another_namespace_is_named() -> None:
    async def then(kube: Kube) -> None:
        with pytest.raises(Missing, match="there is one in red: add -n red"):
            await kinds.get(kube, MAPS, "red", "default")
        with pytest.raises(Missing, match="not found"):
            await kinds.get(kube, MAPS, "none", "default")
        assert (await kinds.get(kube, MAPS, "red", "red"))["metadata"]["name"] == "red"

    run_virtual(with_objects(then))
