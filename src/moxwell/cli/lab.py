"""``moxwell lab``: disconnects regions and hosts of the simulated Proxmox, and restores them."""

import asyncio
import ssl
from typing import Annotated, Any

import typer

from moxwell.cli import connect, program
from moxwell.cli.connect import DEFAULT_NAME, Name
from moxwell.cli.explain import ask
from moxwell.cli.output import Progress, count
from moxwell.clock import SystemClock
from moxwell.errors import Invalid, Missing, Unreachable

app = typer.Typer(no_args_is_help=True)
SECONDS, DISCONNECTED = 30, "disconnected by moxwell lab"
Region = Annotated[str, typer.Argument(metavar="REGION", help="A region of the lab.")]
Host = Annotated[str, typer.Option("--host", help="Only this host. Default: all of the region.")]


@app.command()
def disconnect(region: Region, name: Name = DEFAULT_NAME) -> None:
    """Disconnect a region: its API does not answer, its guests keep running."""
    asyncio.run(_disconnect(name, region))
    asyncio.run(_wait_noticed(name, region, reachable=False))
    word = program.current().command(f"lab connect {region}")
    typer.echo(f"{region} is disconnected; back again: {word}")


@app.command("connect")
def reconnect(region: Region, name: Name = DEFAULT_NAME) -> None:
    """Reconnect a disconnected region."""
    asyncio.run(_connect(name, region))
    asyncio.run(_wait_noticed(name, region, reachable=True))
    typer.echo(f"{region} is connected")


async def _disconnect(name: str, region: str) -> None:
    simulator = _Simulator(name, region)
    if not await simulator.disconnections():
        await simulator.request("faults", {"kind": "cut-before", "text": DISCONNECTED})


async def _connect(name: str, region: str) -> None:
    simulator = _Simulator(name, region)
    for number in await simulator.disconnections():
        await simulator.request(f"faults/{number}", method="DELETE")


async def _wait_noticed(name: str, region: str, *, reachable: bool) -> None:
    """Wait a while until the instance has noticed, so that the next command shows it."""
    clock, progress = SystemClock(), Progress()
    deadline = clock.monotonic() + SECONDS
    try:
        while clock.monotonic() < deadline:
            rows = ask(name, "regions")["rows"]
            if all(row["reachable"] is reachable for row in rows if row["name"] == region):
                return
            progress.say(f"waiting until Moxwell notices it, at most {SECONDS} s")
            await clock.sleep(0.5)
    finally:
        progress.stop()


@app.command("power-off")
def power_off(region: Region, host: Host = "", name: Name = DEFAULT_NAME) -> None:
    """Power off the hosts of a region: its guests stop, and its API does not answer."""
    hosts = asyncio.run(_perform(name, region, host, "host-down"))
    word = program.current().command(f"lab power-on {region}")
    typer.echo(f"{region}: {count(len(hosts), 'host')} powered off; back again: {word}")


@app.command("power-on")
def power_on(region: Region, host: Host = "", name: Name = DEFAULT_NAME) -> None:
    """Power on the hosts of a region."""
    hosts = asyncio.run(_perform(name, region, host, "host-up"))
    typer.echo(f"{region}: {count(len(hosts), 'host')} powered on")


async def _perform(name: str, region: str, host: str, action: str) -> list[str]:
    """Run an action of the simulator for each host; returns their names."""
    simulator = _Simulator(name, region)
    found: list[str] = (await simulator.request())["hosts"][region]
    if host and host not in found:
        raise Missing(f"region {region} has no host {host!r}; it has {', '.join(found)}")
    chosen = [host] if host else found
    for each in chosen:
        await simulator.request(f"do/{action}", {"node": each})
    return chosen


class _Simulator:
    """The control API of the simulator, for one region; raises if the instance is not a lab."""

    def __init__(self, name: str, region: str) -> None:
        info = connect.info(name)
        if info.mode != "lab":
            raise Invalid(f"instance {name!r} is not a lab: its hosts are not simulated")
        if region not in info.regions:
            known = ", ".join(sorted(info.regions))
            raise Missing(f"the lab has no region {region!r}; it has {known}")
        self._root, self._region = f"{info.regions[region][0]}/sim", region
        ca = connect.state(name).folder / "simulator" / "ca.pem"
        self._tls = ssl.create_default_context(cafile=str(ca))

    async def disconnections(self) -> list[int]:
        """The numbers of our rules that cut the connections of the region."""
        return [f["id"] for f in await self.request("faults") if f["text"] == DISCONNECTED]

    async def request(
        self, path: str = "", body: dict[str, str] | None = None, method: str = ""
    ) -> Any:
        """Send one request; an empty path asks for all regions."""
        from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

        url = f"{self._root}/{self._region}/{path}" if path else self._root
        chosen = method or ("GET" if body is None else "POST")
        try:
            async with (
                ClientSession(
                    connector=TCPConnector(ssl=self._tls), timeout=ClientTimeout(SECONDS)
                ) as session,
                session.request(chosen, url, json=body, raise_for_status=True) as response,
            ):
                return await response.json()
        except (ClientError, TimeoutError) as error:
            raise Unreachable(f"the lab does not answer: {type(error).__name__}") from error
