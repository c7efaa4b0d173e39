"""
Transport to a URL that a user chose; it reports the class of an error and not its text.

The body of an error would let the user read answers of any server that this process reaches.
"""

from moxwell.errors import MoxwellError
from moxwell.pve import errors
from moxwell.pve.forwarding_transport import ForwardingTransport, SendTo


class ErrorClassTransport(ForwardingTransport):
    """Replaces the text of every error by the name of its class."""

    async def _forward(self, method: str, path: str, send: SendTo) -> bytes:
        what = f"{method} {path}"
        try:
            return await send(self._inner)
        except errors.PveError as error:
            text = f"region {self.region}: {what}: {error.reason}"
            raise type(error)(text, status=error.status) from None
        except MoxwellError as error:
            raise type(error)(f"region {self.region}: {what}: {error.reason}") from None
