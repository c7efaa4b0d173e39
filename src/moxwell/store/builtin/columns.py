"""Columns of ``kubectl get`` for built-in kinds."""

from collections.abc import Mapping

from moxwell.store.faces import Column

COLUMNS: Mapping[str, tuple[Column, ...]] = {}
