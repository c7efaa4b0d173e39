"""Random sequences of applies and patches, reproducible by seed."""

import random
from collections.abc import Callable
from typing import Any

from apisuite.case import (
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    ApiRequest,
    Case,
    case,
    patch,
    post,
    server_side_apply,
    status_only,
)
from apisuite.cases.bodies import DEPLOYMENTS, WIDGETS, Body, crd, deployment
from apisuite.cases.crds import made

P = f"{WIDGETS}/w"
D = f"{DEPLOYMENTS}/d"
WORDS = ("x", "y", "z")
MANAGERS = ("one", "two", "three")
TEXT: Body = {"type": "string"}
PORTS = {"main": 1000, "side": 2000, "third": 3000}  # a duplicate port causes a warning
NUMBER: Body = {"type": "integer"}
ITEM: Body = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": TEXT,
        "n": NUMBER,
        "filled": {"type": "integer", "default": 7},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "inner": {"type": "object", "properties": {"x": NUMBER, "y": NUMBER}},
    },
}
RICH: Body = {
    "n": NUMBER,
    "s": TEXT,
    "map": {"type": "object", "additionalProperties": TEXT},
    "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
    "list": {"type": "array", "items": TEXT},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    "items": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["id"],
        "items": ITEM,
    },
    "obj": {
        "type": "object",
        "properties": {"x": NUMBER, "deep": {"type": "object", "properties": {"z": NUMBER}}},
    },
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
SCHEMA: Body = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": RICH}},
}
DEFINED = made(crd(schema={"openAPIV3Schema": SCHEMA}, subresources=None))
Dice = random.Random


def _words(dice: Dice) -> list[str]:
    return dice.sample(WORDS, dice.randint(0, 3))


def _map(dice: Dice) -> Body:
    return {word: str(dice.randint(0, 2)) for word in _words(dice)}


def _item(dice: Dice, key: str) -> Body:
    item: Body = {"id": key}
    if dice.random() < 0.5:
        item["n"] = dice.randint(0, 2)
    if dice.random() < 0.3:
        item["tags"] = _words(dice)
    if dice.random() < 0.3:
        item["inner"] = {"x": dice.randint(0, 2)}
    return item


MAKERS: dict[str, Callable[[Dice], Any]] = {
    "n": lambda dice: dice.randint(0, 2),
    "s": lambda dice: dice.choice(WORDS),
    "map": _map,
    "whole": _map,
    "list": _words,
    "set": _words,
    "items": lambda dice: [_item(dice, key) for key in _words(dice)],
    "obj": lambda dice: {"x": dice.randint(0, 2), "deep": {"z": dice.randint(0, 2)}},
    "free": lambda dice: {"a": {"b": dice.randint(0, 2)}, "c": _words(dice)},
}


def _spec(dice: Dice) -> Body:
    names = dice.sample(sorted(MAKERS), dice.randint(1, 5))
    return {name: MAKERS[name](dice) for name in names}


def _widget(dice: Dice) -> Body:
    head: Body = {"apiVersion": "$u.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    if dice.random() < 0.4:
        head["metadata"]["labels"] = _map(dice) or {"v": "0"}
    return {**head, "spec": _spec(dice)}


def _apply(dice: Dice) -> ApiRequest:
    return server_side_apply(P, dice.choice(MANAGERS), _widget(dice), force=dice.random() < 0.4)


def _merge(dice: Dice) -> ApiRequest:
    spec = _spec(dice)
    for name in list(spec):
        if dice.random() < 0.3:
            spec[name] = None
    return patch(MERGE, f"{P}?fieldManager={dice.choice(MANAGERS)}", {"spec": spec})


def _json(dice: Dice) -> ApiRequest:
    name = dice.choice(sorted(MAKERS))
    steps = [{"op": "add", "path": f"/spec/{name}", "value": MAKERS[name](dice)}]
    return patch(JSON_PATCH, f"{P}?fieldManager={dice.choice(MANAGERS)}", steps)


def appliers(seed: int) -> Case:
    """Nine writes by three managers in four ways; object and owners are compared after each."""
    dice = random.Random(f"appliers {seed}")
    kinds = (_apply, _apply, _apply, _merge, _json)
    steps = [dice.choice(kinds)(dice) for _ in range(8)]
    return case(f"appliers, story {seed}", *DEFINED, _apply(dice), *steps)


def _container(dice: Dice, name: str) -> Body:
    made: Body = {"name": name, "image": f"registry.example/{dice.choice(WORDS)}"}
    if dice.random() < 0.5:
        made["env"] = [{"name": w, "value": str(dice.randint(0, 2))} for w in _words(dice)]
    if dice.random() < 0.3:
        made["args"] = _words(dice)
    if dice.random() < 0.3:
        made["ports"] = [{"containerPort": PORTS[name] + dice.randint(0, 2)}]
    if dice.random() < 0.2:
        made = {"name": name, "$patch": "delete"} if name != "main" else made
    return made


def _strategic(dice: Dice) -> ApiRequest:
    names = dice.sample(("main", "side", "third"), dice.randint(1, 3))
    spec: Body = {"containers": [_container(dice, name) for name in names]}
    if dice.random() < 0.4:
        spec["volumes"] = [{"name": w, "emptyDir": {}} for w in _words(dice)]
    if dice.random() < 0.3:
        spec["nodeSelector"] = {w: None if dice.random() < 0.5 else "1" for w in _words(dice)}
    body = {"spec": {"template": {"spec": spec}}}
    shown = ("spec.template.spec", "message", "metadata.generation")
    return patch(STRATEGIC, f"{D}?fieldManager={dice.choice(MANAGERS)}", body, only=shown)


def strategists(seed: int) -> Case:
    """Six strategic merge patches of one Deployment."""
    dice = random.Random(f"strategists {seed}")
    steps = [_strategic(dice) for _ in range(6)]
    return case(
        f"strategic patches, story {seed}",
        status_only(post(DEPLOYMENTS, deployment("d", 0, paused=True))),
        *steps,
    )


CASES = (*map(appliers, range(40)), *map(strategists, range(20)))
