"""What a genuine apiserver refuses in built-in kinds, for the fields people get wrong."""

from collections.abc import Callable, Mapping
from typing import Any

from moxwell.store.refusals import Cause

Check = Callable[[dict[str, Any], dict[str, Any] | None, str], list[Cause]]
CHECKS: Mapping[str, Check] = {}
