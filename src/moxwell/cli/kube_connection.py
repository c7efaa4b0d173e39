"""Connects to the Kubernetes API that a kubeconfig or the service account of a pod names."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moxwell.clock import SystemClock
from moxwell.kube import kubeconfig
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport


@asynccontextmanager
async def connected(file: Path | None) -> AsyncIterator[Kube]:
    """A client from a kubeconfig file, the pod's service account or the default kubeconfig."""
    clock = SystemClock()
    if file is not None:
        access = kubeconfig.load([file]).access(clock, os.environ)
    else:
        access = kubeconfig.find(clock, os.environ)
    async with KubeTransport(access) as transport:
        yield Kube(transport)
