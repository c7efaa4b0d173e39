"""
What a controller does next, as a value that can be printed, compared and refused.

``plan`` returns one ``Move``: one of the controller's own moves (a step on Proxmox from
``pve.steps``, a ``Writes`` on Kubernetes, a frozen value of its own), ``Wait`` or ``Done``. Each
controller closes its union itself (``Move = Clone | Start | Wait | Done``), so that a type checker
finds a missing branch. Nothing is executed here.
"""

from dataclasses import dataclass, fields, is_dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Wait:
    """
    Nothing to do until something else happens.

    ``reason`` is a member of the controller's Reason enum and becomes the reason of the condition.
    ``requeue_after`` is the number of seconds until the next pass if no event causes one earlier;
    None leaves it to the resync.
    """

    reason: str
    message: str = ""
    requeue_after: float | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The observed state is the desired state; for an object being deleted: nothing is left."""

    requeue_after: float | None = None


def is_final(move: object) -> bool:
    """
    Whether the finalizer may be removed when the move has been executed.

    True for ``Done`` and for a move whose class sets ``final = True``: an idempotent call whose
    effect cannot be observed afterwards, such as DeleteVolume of a CSI driver.
    """
    return isinstance(move, Done) or bool(getattr(move, "final", False))


def as_text(move: object) -> str:
    """A move in one line for a person: ``Clone(vmid=101)``, ``waiting: TaskRunning``."""
    if isinstance(move, Done):
        return "nothing to do"
    if isinstance(move, Wait):
        return f"waiting: {move.reason}" + (f" ({move.message})" if move.message else "")
    if type(move).__str__ is not object.__str__:
        return str(move)
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
