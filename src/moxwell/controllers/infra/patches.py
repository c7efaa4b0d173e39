"""JSON merge patches of structs."""

from typing import Any

import msgspec


def explicit(value: msgspec.Struct) -> dict[str, Any]:
    """
    The struct as a merge patch that replaces it: omitted fields are explicit nulls.

    Structs omit defaults when they are encoded, and a merge patch leaves omitted fields unchanged.
    """
    out: dict[str, Any] = dict.fromkeys(value.__struct_encode_fields__)
    tree = msgspec.to_builtins(value)
    for name, wire in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        nested = getattr(value, name)
        if wire in tree:
            out[wire] = explicit(nested) if isinstance(nested, msgspec.Struct) else tree[wire]
    return out
