"""What a genuine apiserver fills in for built-in kinds."""

from collections.abc import Callable, Mapping
from typing import Any

DEFAULTS: Mapping[str, Callable[[dict[str, Any]], None]] = {}
