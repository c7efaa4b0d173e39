"""The interface of the API server to the kubelets of a cluster, genuine or simulated."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from aiohttp import WSMessage

from moxwell.embedded.apiserver.kubelet.pod_target import PodTarget

Json = dict[str, Any]
Query = Sequence[tuple[str, str]]
FindNodes = Callable[[str], Iterable[Json]]  # the node of a name; all nodes if it is empty


class KubeletSocket(Protocol):
    """A connection to a kubelet; messages of exec begin with their channel."""

    async def send_bytes(self, data: bytes) -> None: ...

    async def close(self) -> Any: ...

    def __aiter__(self) -> AsyncIterator[WSMessage]: ...


class Kubelets(Protocol):
    """Requests to the kubelets of one cluster."""

    async def logs(self, target: PodTarget, query: Query) -> AsyncIterator[bytes]:
        """The log of a container; raises what the kubelet answered before the first byte."""
        ...

    def exec(self, target: PodTarget, query: Query) -> AbstractAsyncContextManager[KubeletSocket]:
        """Run a command in a container; messages have the channels of Kubernetes."""
        ...

    def forward(self, target: PodTarget, port: int) -> AbstractAsyncContextManager[KubeletSocket]:
        """One connection to a port of a pod; messages are its bytes."""
        ...

    async def usage(self) -> Mapping[str, Any]:
        """The usage of all nodes of the cluster, with the time of the measurement."""
        ...

    async def close(self) -> None: ...


OpenKubelets = Callable[[FindNodes], Kubelets]
