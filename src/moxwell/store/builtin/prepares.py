"""What writers of built-in kinds may not set, and what is set for them."""

from collections.abc import Callable, Mapping
from typing import Any

Prepare = Callable[[dict[str, Any], dict[str, Any] | None, str], None]
PREPARES: Mapping[str, Prepare] = {}
