"""
What a controller would do next, as a value that can be printed, compared and refused.

A plan is a pure function to a ``Move``: one of the controller's own steps, ``Wait`` or ``Settled``.
Each controller closes its union itself (``Move = Clone | Start | Wait | Settled``), so that a type
checker sees a forgotten branch; steps on Proxmox come from ``pve.steps``. Nothing is done here.
"""

from dataclasses import dataclass, fields, is_dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something else happens; ``reason`` becomes the condition's."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """The world is as asked; for an object being deleted: nothing of it is left."""


def as_text(move: object) -> str:
    """A move in one line for a person: ``Clone(vmid=101)``, ``waiting: TaskRunning``."""
    if isinstance(move, Settled):
        return "nothing to do"
    if isinstance(move, Wait):
        return f"waiting: {move.reason}" + (f" ({move.message})" if move.message else "")
    pairs = ", ".join(f"{name}={value!r}" for name, value in _fields(move))
    return f"{type(move).__name__}({pairs})"


def _fields(move: object) -> list[tuple[str, object]]:
    if isinstance(move, msgspec.Struct):
        names = move.__struct_fields__
    elif is_dataclass(move):
        names = tuple(f.name for f in fields(move) if f.repr)
    else:
        return []
    return [(name, getattr(move, name)) for name in names if getattr(move, name) is not None]
