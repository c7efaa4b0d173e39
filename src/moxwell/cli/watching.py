"""Follows the changes of objects for commands with ``--watch``."""

from collections.abc import AsyncIterator
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.kube.client import Kube
from moxwell.kube.codec import WatchEvent

Json = dict[str, Any]


async def changes(
    kube: Kube, resource: Resource, namespace: str, version: str, labels: str = ""
) -> AsyncIterator[WatchEvent[Json]]:
    """Every change from a resource version on, over as many watches as it takes."""
    stream = kube.watch(resource, namespace, resource_version=version, labels=labels)
    while True:
        async for event in stream:
            if isinstance(event, WatchEvent):
                yield event
