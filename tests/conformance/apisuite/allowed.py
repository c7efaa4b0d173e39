"""The reviewed differences between the embedded API and a genuine one, each with its reason."""

from apisuite.differ import Allowed

ALLOWED: tuple[Allowed, ...] = ()
