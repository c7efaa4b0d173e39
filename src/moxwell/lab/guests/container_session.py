"""
Serves ``exec`` in a simulated container over a WebSocket with the channels of Kubernetes.

Channels: 0 stdin, 1 stdout, 2 stderr, 3 the status at the end, 4 the size of the terminal, 255 the
end of a channel.
"""

import json
from dataclasses import dataclass
from typing import Any

from aiohttp import WSMsgType, web

from moxwell.lab.guests.simulated_shell import SHELLS, ShellOutput, SimulatedShell
from moxwell.lab.guests.terminal import LineReader, TypedLine, for_terminal

STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
PROTOCOL = "v5.channel.k8s.io"
PROMPT = "/ # "


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """The options of an exec request."""

    command: tuple[str, ...]
    stdin: bool = False
    tty: bool = False


def exit_status(code: int) -> dict[str, Any]:
    """The Status that ends a command."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


class ContainerSession:
    """One exec session."""

    def __init__(
        self, socket: web.WebSocketResponse, shell: SimulatedShell, options: ExecOptions
    ) -> None:
        self._socket, self._shell, self._options = socket, shell, options
        self._lines = LineReader(options.tty)

    async def run(self) -> None:
        """Serve until the command ends or the client leaves."""
        argv = list(self._options.command)
        name = argv[0].rpartition("/")[2] if argv else ""
        if self._options.stdin and name in SHELLS and "-c" not in argv:
            code = await self._interactive()
        elif self._options.stdin and argv == ["cat"]:
            code = await self._copy()
        else:
            result = self._shell.execute(argv)
            await self._print(result)
            code = result.code
        await self._send(ERROR, json.dumps(exit_status(code)).encode())
        await self._socket.close()

    async def _copy(self) -> int:
        while (data := await self._input()) is not None:
            await self._send(STDOUT, data)
        return 0

    async def _interactive(self) -> int:
        if self._options.tty:
            await self._send(STDOUT, for_terminal(self._shell.banner, tty=True) + PROMPT.encode())
        else:
            await self._send(STDERR, self._shell.banner.encode())
        while not self._shell.exited:
            data = await self._input()
            echo, lines = self._lines.feed(data) if data is not None else (b"", self._lines.end())
            if echo:
                await self._send(STDOUT, echo)
            for line in lines:
                await self._line(line)
                if self._shell.exited:
                    break
        return self._shell.code

    async def _line(self, line: TypedLine) -> None:
        if line.ended:
            self._shell.exited = True
            return
        await self._print(self._shell.line(line.text))
        if self._options.tty and not self._shell.exited:
            await self._send(STDOUT, PROMPT.encode())

    async def _input(self) -> bytes | None:
        """The next bytes of stdin; None at its end."""
        while True:
            message = await self._socket.receive()
            if message.type is not WSMsgType.BINARY:
                return None
            data: bytes = message.data
            if data[:1] == bytes([STDIN]) and len(data) > 1:
                return data[1:]
            if data == bytes([CLOSE, STDIN]):
                return None

    async def _print(self, result: ShellOutput) -> None:
        tty = self._options.tty
        await self._send(STDOUT, for_terminal(result.out, tty=tty))
        await self._send(STDOUT if tty else STDERR, for_terminal(result.error, tty=tty))

    async def _send(self, channel: int, data: bytes) -> None:
        if data and not self._socket.closed:
            await self._socket.send_bytes(bytes([channel]) + data)
