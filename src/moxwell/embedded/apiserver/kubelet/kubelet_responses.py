"""Limits, errors and log streams of requests to kubelets, genuine or simulated."""

from collections.abc import AsyncIterator

from aiohttp import ClientError, ClientResponse

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.status_errors import StatusError

CONNECT_SECONDS, CHUNK, MAX_MESSAGE, MAX_ERROR = 10.0, 64 * 1024, 1 << 20, 4096


async def log_of(response: ClientResponse, node: str) -> AsyncIterator[bytes]:
    """The chunks of a log; raises what the kubelet answered instead."""
    if response.status != 200:
        text = await response.content.read(MAX_ERROR)
        response.release()
        raise refused(response.status, text.decode(errors="replace"), node)
    return _chunks(response)


async def _chunks(response: ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_chunked(CHUNK):
            yield chunk
    except ClientError:
        return  # the node stopped: the log ends
    finally:
        response.close()


def unreachable(node: str, error: Exception) -> StatusError:
    """No connection to the kubelet of a node."""
    return status_errors.internal(f'error dialing the kubelet of node "{node}": {error}')


def refused(status: int, text: str, node: str) -> StatusError:
    """What the kubelet answered instead of serving the request."""
    if status == 400:
        return status_errors.bad_request(text)
    if status == 429:
        return StatusError(429, "TooManyRequests", text)
    return status_errors.internal(text or f'the kubelet of node "{node}" answered {status}')
