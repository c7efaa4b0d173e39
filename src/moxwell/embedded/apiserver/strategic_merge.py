"""
Strategic merge patch, for built-in kinds.

Merge schemas give the merge keys of lists. Directives: ``$patch`` (replace, delete, merge),
``$retainKeys``, ``$deleteFromPrimitiveList/x`` and ``$setElementOrder/x``. The document is modified
in place.
"""

from typing import Any

from moxwell.embedded.apiserver import jsonpatch
from moxwell.embedded.apiserver.merge_schema import MAP, MergeSchema

Object = dict[str, Any]
_DELETE_LIST, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"
PatchFailed = jsonpatch.PatchFailed


def merge(target: Object, patch: Object, schema: MergeSchema) -> Object:
    """Apply the patch to the document."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchFailed(f"Unknown patch type: {directive}")
    _retain(target, patch)
    orders = {k[len(_ORDER) :]: v for k, v in patch.items() if k.startswith(_ORDER)}
    for key, value in patch.items():
        if key.startswith(_DELETE_LIST):
            _delete_from(target, key[len(_DELETE_LIST) :], value)
        elif not key.startswith("$"):
            _member(target, key, value, schema, orders.pop(key, None))
    for key, order in orders.items():
        if isinstance(target.get(key), list):
            target[key] = _ordered(target[key], order, target[key], schema.field(key).merge_key)
    return target


def _retain(target: Object, patch: Object) -> None:
    keep = patch.get("$retainKeys")
    if keep is None:
        return
    if not isinstance(keep, list):
        raise PatchFailed("Invalid patch format of retainKeys")
    for key in [k for k in target if k not in keep]:
        del target[key]


def _delete_from(target: Object, key: str, gone: Any) -> None:
    if isinstance(target.get(key), list) and isinstance(gone, list):
        target[key] = [item for item in target[key] if item not in gone]


def _member(target: Object, key: str, value: Any, schema: MergeSchema, order: Any) -> None:
    below = schema.field(key) if schema.kind == MAP else schema
    if value is None:
        target.pop(key, None)
    elif isinstance(value, dict):
        live = target.get(key)
        if "replace" in below.strategies and "$patch" not in value:
            target[key] = clean(value)
            return
        merged = merge(live if isinstance(live, dict) else {}, value, below)
        if value.get("$patch") == "delete":
            target.pop(key, None)
        else:
            target[key] = merged
    elif isinstance(value, list) and "merge" in below.strategies:
        target[key] = _list(target.get(key), value, below, order)
    else:
        target[key] = clean(value)


def clean(value: Any) -> Any:
    """Remove directives and nulls from a value that is added as a whole."""
    if isinstance(value, dict):
        return {k: clean(v) for k, v in value.items() if v is not None and not k.startswith("$")}
    if isinstance(value, list):
        return [
            clean(item) for item in value if not (isinstance(item, dict) and item.get("$patch"))
        ]
    return value


def _list(live: Any, patch: list[Any], schema: MergeSchema, order: Any) -> list[Any]:
    had = list(live) if isinstance(live, list) else []
    if any(isinstance(item, dict) and item.get("$patch") == "replace" for item in patch):
        return [clean(i) for i in patch if not (isinstance(i, dict) and i.get("$patch"))]
    if not schema.merge_key:
        made = had + [i for at, i in enumerate(patch) if i not in had and i not in patch[:at]]
    else:
        made = _by_key(had, patch, schema)
    chosen = order if isinstance(order, list) else patch
    return _ordered(made, chosen, had, schema.merge_key)


def _by_key(had: list[Any], patch: list[Any], schema: MergeSchema) -> list[Any]:
    key, made = schema.merge_key, list(had)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise PatchFailed(f"map: {item} does not contain declared merge key: {key}")
        at = next((n for n, old in enumerate(made) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            made = [old for old in made if old.get(key) != item[key]]
        elif at is None:
            made.append(merge({}, item, schema.element()))
        else:
            made[at] = merge(made[at], item, schema.element())
    return made


def _ordered(made: list[Any], order: list[Any], had: list[Any], key: str) -> list[Any]:
    """
    Order items as the patch does; other items keep their position before the items they preceded.
    """

    def name(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted, before = [name(item) for item in order], [name(item) for item in had]
    right = sorted((i for i in made if name(i) in wanted), key=lambda i: wanted.index(name(i)))
    left = [item for item in made if name(item) not in wanted]
    result: list[Any] = []
    while left and right:
        a, b = name(left[0]), name(right[0])
        first = a in before and b in before and before.index(a) < before.index(b)
        result.append(left.pop(0) if first else right.pop(0))
    return result + left + right
