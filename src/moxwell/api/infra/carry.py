"""
Conversions that lose nothing, whatever the two forms can express.

In flow an object and two pure functions, ``up`` to the hub and ``down`` from it, each of which may
drop what the other side has no words for. Out flows the converted object; what would be lost is
kept in an annotation beside it. On the way back a three-way merge decides: what the reader did
not change is taken from the annotation, what he changed is taken from him. An annotation is only
written where something would be lost, so plain objects stay plain.
"""

import json
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Convert = Callable[[Json], Json]
PREFIX = "conversion.moxwell.dev/"
_KEYS = ("name", "zone", "type", "net", "disk")


def to_hub(obj: Json, up: Convert, down: Convert, *, version: str, hub: str) -> Json:
    """The object in hub form; what only ``version`` can say is kept beside it."""
    bare, kept = _split(obj, PREFIX + hub)
    made = up(_with_parts(bare, bare))
    if kept is not None:
        base = up(_with_parts(bare, down(_with_parts(made, kept))))
        made = _with_parts(made, _merge(kept, _parts(base), _parts(made)))
    return _keep(made, bare, down(made), PREFIX + version)


def from_hub(obj: Json, up: Convert, down: Convert, *, version: str, hub: str) -> Json:
    """The object in the form of ``version``; what only the hub can say is kept beside it."""
    bare, kept = _split(obj, PREFIX + version)
    made = down(_with_parts(bare, bare))
    if kept is not None:
        base = down(_with_parts(bare, up(_with_parts(made, kept))))
        made = _with_parts(made, _merge(kept, _parts(base), _parts(made)))
    return _keep(made, bare, up(made), PREFIX + hub)


def _keep(made: Json, original: Json, back: Json, annotation: str) -> Json:
    """Note the original beside what was made of it, unless the way back gives it again."""
    if _parts(back) == _parts(original):
        return made
    text = json.dumps(_parts(original), sort_keys=True, separators=(",", ":"))
    meta = dict(made.get("metadata") or {})
    meta["annotations"] = {**(meta.get("annotations") or {}), annotation: text}
    return {**made, "metadata": meta}


def _split(obj: Json, annotation: str) -> tuple[Json, Json | None]:
    """The object without the annotation, and what the annotation holds."""
    meta = dict(obj.get("metadata") or {})
    notes = dict(meta.get("annotations") or {})
    text = notes.pop(annotation, None)
    if text is None:
        return obj, None
    if notes:
        meta["annotations"] = notes
    else:
        meta.pop("annotations", None)
    try:
        kept = json.loads(text)
    except ValueError:
        kept = None
    return {**obj, "metadata": meta}, kept if isinstance(kept, dict) else None


def _parts(obj: Json) -> Json:
    """What is converted; nothing said is an empty spec, an empty status."""
    return {k: obj.get(k) or {} for k in ("spec", "status")}


def _with_parts(obj: Json, parts: Json) -> Json:
    rest = {k: v for k, v in obj.items() if k not in ("spec", "status")}
    both = _parts(parts)
    return {**rest, "spec": both["spec"], **({"status": both["status"]} if both["status"] else {})}


def _merge(kept: Any, base: Any, now: Any) -> Any:
    """``kept``, with whatever differs between ``base`` and ``now`` changed to ``now``."""
    if now == base:
        return kept
    if isinstance(kept, dict) and isinstance(base, dict) and isinstance(now, dict):
        return _merge_dicts(kept, base, now)
    key = _key(kept, base, now)
    if key:
        return _merge_lists(kept, base, now, key)
    return now


def _merge_dicts(kept: Json, base: Json, now: Json) -> Json:
    out: Json = {}
    for name in [*now, *(k for k in kept if k not in now)]:
        if name not in now:
            if name not in base:
                out[name] = kept[name]
            continue
        if name in base and name in kept:
            out[name] = _merge(kept[name], base[name], now[name])
        elif name in base and base[name] == now[name]:
            continue  # a word the way there and back adds, which was not in the original
        else:
            out[name] = now[name]
    return out


def _key(*lists: Any) -> str:
    """The field that names the items of all these lists, if there is one."""
    if not all(isinstance(each, list) for each in lists):
        return ""
    items = [item for each in lists for item in each]
    for key in _KEYS:
        if items and all(isinstance(i, dict) and key in i for i in items):
            return key if all(len({i[key] for i in e}) == len(e) for e in lists) else ""
    return ""


def _merge_lists(kept: list[Any], base: list[Any], now: list[Any], key: str) -> list[Any]:
    keeps, bases = ({i[key]: i for i in each} for each in (kept, base))
    out = [
        _merge(keeps[i[key]], bases[i[key]], i) if i[key] in keeps and i[key] in bases else i
        for i in now
    ]
    names = {i[key] for i in now} | set(bases)
    return out + [i for i in kept if i[key] not in names]
