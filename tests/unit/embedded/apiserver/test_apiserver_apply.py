"""Server-side apply: properties of field sets and merging, then examples through the API."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.embedded.apiserver import merge_schema
from moxwell.embedded.apiserver.apply import field_sets, typed_values
from moxwell.embedded.apiserver.apply.managed_fields import applier, updater
from moxwell.embedded.apiserver.apply.server_side_apply import FieldManager, VersionView
from moxwell.testing.api_calls import CM, ApiClient, configmap

Play = Callable[..., Any]
_keys = st.sampled_from(["f:a", "f:b", "f:c", 'k:{"n":"x"}', "v:1"])
fieldsets = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(_keys, inner, max_size=3).flatmap(
        lambda d: st.booleans().map(lambda dot: {".": {}, **d} if dot and d else d)
    ),
    max_leaves=8,
).map(lambda d: {k: v for k, v in d.items() if k != "."})


def members(of: dict[str, Any]) -> set[str]:
    return set(field_sets.paths(of))


@settings(deadline=None)
@given(fieldsets, fieldsets)
def test_set_operations_are_those_of_sets(a: Any, b: Any) -> None:
    assert members(field_sets.union(a, b)) == members(a) | members(b)
    assert members(field_sets.intersection(a, b)) == members(a) & members(b)
    assert members(field_sets.difference(a, b)) == members(a) - members(b)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plain": {"type": "string"},
        "whole": {"type": "array", "items": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "list": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["n"],
            "items": {
                "type": "object",
                "properties": {"n": {"type": "string"}, "v": {"type": "string"}},
            },
        },
    },
}
MERGE_SCHEMA = merge_schema.from_schema(SCHEMA, {})
_word = st.sampled_from("xyz")
_item: Any = st.fixed_dictionaries({"n": _word}, optional={"v": _word})


def _name(item: Any) -> str:
    return str(item["n"])


objects = st.fixed_dictionaries(
    {},
    optional={
        "plain": _word,
        "whole": st.lists(_word, min_size=1, max_size=2),
        "map": st.dictionaries(_word, _word, min_size=1, max_size=2),
        "set": st.lists(_word, unique=True, min_size=1, max_size=3),
        "list": st.lists(_item, unique_by=_name, min_size=1, max_size=3),
    },
)


@settings(deadline=None)
@given(objects, objects)
def test_a_merge_contains_the_applied_configuration(live: Any, config: Any) -> None:
    merged = typed_values.merge(live, config, MERGE_SCHEMA)
    compared = typed_values.compare(
        merged, typed_values.merge(merged, config, MERGE_SCHEMA), MERGE_SCHEMA
    )
    assert compared.same
    applied = typed_values.fields_of(config, MERGE_SCHEMA)
    assert members(applied) <= members(typed_values.fields_of(merged, MERGE_SCHEMA))


@settings(deadline=None)
@given(objects, objects)
def test_a_comparison_lists_every_change(old: Any, new: Any) -> None:
    compared = typed_values.compare(old, new, MERGE_SCHEMA)
    had, has = (
        members(typed_values.fields_of(old, MERGE_SCHEMA)),
        members(typed_values.fields_of(new, MERGE_SCHEMA)),
    )
    assert members(compared.removed) >= had - has
    assert members(compared.added) >= has - had
    assert compared.same == _equal_unordered(old, new)


def _equal_unordered(a: Any, b: Any) -> bool:
    """Compare without the order of unordered lists."""

    def norm(o: Any) -> Any:
        made = dict(o)
        if "set" in made:
            made["set"] = sorted(made["set"])
        if "list" in made:
            made["list"] = sorted(made["list"], key=lambda i: i["n"])
        return made

    return bool(norm(a) == norm(b))


def _field_manager() -> FieldManager:
    return FieldManager(lambda v: VersionView("v1", MERGE_SCHEMA, lambda o: o), "v1", lambda f: f)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), objects), min_size=1, max_size=6))
def test_a_forced_apply_sets_the_configuration_and_nothing_else(steps: Any) -> None:
    """
    After a forced apply the object holds the configuration and fields that nobody applies are
    removed.
    """
    book, live, managers = _field_manager(), {}, {}  # type: ignore[var-annotated]
    last: dict[str, Any] = {}
    for name, config in steps:
        live, managers = book.apply(live, config, managers, applier(name, ""), force=True)
        live = live or {}
        last[name] = config
        wanted = members(typed_values.fields_of(config, MERGE_SCHEMA))
        assert wanted <= members(typed_values.fields_of(live, MERGE_SCHEMA))
        owned: set[str] = set()
        for what in managers.values():
            owned |= members(what.fields)
        assert members(typed_values.fields_of(live, MERGE_SCHEMA)) <= _with_parents(owned)


def _with_parents(owned: set[str]) -> set[str]:
    """Add the keys of list items to the paths below them."""
    found = set(owned)
    for path in owned:
        head, bracket, _ = path.partition("]")
        if bracket:
            found |= {head + "]", head + "].n"}
    return found


@settings(deadline=None)
@given(objects, objects)
def test_an_unforced_apply_changes_nothing_of_others(first: Any, second: Any) -> None:
    from moxwell.embedded.apiserver.apply.server_side_apply import FieldConflict

    book = _field_manager()
    live, managers = book.apply({}, first, {}, applier("one", ""), force=False)
    contested: set[str] | None = None
    try:
        merged, _ = book.apply(live or {}, second, managers, applier("two", ""), force=False)
    except FieldConflict as conflict:
        contested = members(conflict.fields)
    if contested is None:
        assert typed_values.compare(first, merged, MERGE_SCHEMA).modified == {}
    else:
        assert contested & members(managers[applier("one", "")].fields)


@settings(deadline=None)
@given(objects, objects)
def test_an_update_owns_what_it_changed(old: Any, new: Any) -> None:
    me = updater("me", "", "v1")
    made = _field_manager().update(old, new, {}, me, "now")
    owned = members(made[me].fields) if me in made else set()
    compared = typed_values.compare(old, new, MERGE_SCHEMA)
    assert owned == members(compared.changed())


def test_a_conflict_names_its_owner_and_force_takes_over(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        path = f"{CM}/a"
        await api.apply(path, configmap("a", k="1"), "one")
        error_response = await api.apply(path, configmap("a", k="2"), "two")
        assert error_response.status == 409
        assert error_response.object["message"].endswith('conflict with "one": .data.k')
        taken = (await api.apply(path, configmap("a", k="2"), "two", force="true")).object
        managers = {m["manager"]: m["fieldsV1"] for m in taken["metadata"]["managedFields"]}
        assert managers == {"two": {"f:data": {"f:k": {}}}}

    play(story)


def test_fields_a_manager_no_longer_applies_are_removed(play: Play) -> None:
    async def story(api: ApiClient) -> None:
        path = f"{CM}/a"
        await api.apply(path, configmap("a", k="1", l="2"), "one")
        await api.patch(path, {"data": {"m": "3"}})
        left = (await api.apply(path, configmap("a", k="1"), "one")).object
        assert left["data"] == {"k": "1", "m": "3"}

    play(story)
