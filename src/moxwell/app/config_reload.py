"""
Takes over an edited configuration file while the instance runs.

Regions, their credentials, certificates, pools and limits are applied at once. Everything else is
read at the start only; the record says which changed sections wait for a restart. An invalid file
is not applied, and the record says why. ``moxwell status`` prints the record.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import structlog

from moxwell import config_file
from moxwell.app import launch_options
from moxwell.app.launch_options import LaunchOptions
from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.errors import Invalid, Missing
from moxwell.pve import config
from moxwell.pve.config import RegionConfig

SECONDS = 5.0
APPLIED = "clusters"  # the section that is applied while the instance runs
log = structlog.get_logger(__name__)


class ReloadRecord(msgspec.Struct, frozen=True):
    """What became of the last change of the configuration file."""

    at: str = ""
    problem: str = ""  # why the file is not applied
    restart: tuple[str, ...] = ()  # changed sections that are read at the start only

    def lines(self) -> Iterable[str]:
        """Messages for the user; empty if everything is applied."""
        if self.problem:
            yield f"the changed configuration is not used: {self.problem}"
        if self.restart:
            what = ", ".join(self.restart)
            yield f"changes of {what} take effect at the next start: `moxwell down`, `moxwell up`"


def read_record(file: Path) -> ReloadRecord:
    """The record of a running instance."""
    if not file.exists():
        return ReloadRecord()
    return msgspec.json.decode(file.read_bytes(), type=ReloadRecord)


def changed_sections(before: str, after: str) -> tuple[str, ...]:
    """The sections that differ and are read at the start only. Pure."""
    old, new = config_file.parse_mapping(before), config_file.parse_mapping(after)
    differ = {key for key in {*old, *new} if old.get(key) != new.get(key)}
    return tuple(sorted(map(str, differ - {APPLIED})))


class ConfigReload:
    """Watches one configuration file."""

    def __init__(
        self,
        options: LaunchOptions,
        configs: tuple[RegionConfig, ...],
        clock: Clock,
        *,
        record: Path,
        apply: Callable[[tuple[RegionConfig, ...]], None],
    ) -> None:
        """``configs`` are the regions that the instance started with; ``apply`` uses new ones."""
        self._options, self._clock, self._record, self._apply = options, clock, record, apply
        self._configs, self._last = configs, ReloadRecord()
        self._started_with = config_file.read_text(Path(options.config))

    async def run(self) -> None:
        """Look at the file every few seconds until cancelled."""
        self._record.unlink(missing_ok=True)
        while True:
            await self._clock.sleep(SECONDS)
            await self.look()

    async def look(self) -> None:
        """Apply the file if it changed."""
        try:
            configs, restart = await asyncio.to_thread(self._read)
        except (Invalid, Missing) as error:
            self._remember(str(error), self._last.restart)
            return
        if configs != self._configs:
            self._apply(configs)
            self._configs = configs
            log.info("configuration reloaded", regions=[c.region for c in configs])
        self._remember("", restart)

    def _read(self) -> tuple[tuple[RegionConfig, ...], tuple[str, ...]]:
        """The regions, with the files that they name, and what needs a restart."""
        launch_options.check(self._options)
        path = Path(self._options.config)
        return config.load(path), changed_sections(self._started_with, config_file.read_text(path))

    def _remember(self, problem: str, restart: tuple[str, ...]) -> None:
        """Write and log what is new."""
        if (problem, restart) == (self._last.problem, self._last.restart):
            return
        now = self._clock.now().strftime("%Y-%m-%d %H:%M:%S UTC")
        self._last = ReloadRecord(now, problem, restart)
        for line in self._last.lines():
            log.warning("configuration changed", text=line)
        write_private(self._record, msgspec.json.encode(self._last))
