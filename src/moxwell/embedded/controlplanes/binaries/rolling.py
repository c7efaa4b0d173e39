"""Restarts several programs of one kind one after the other, so that the others keep answering."""

from collections.abc import Callable, Sequence

from moxwell.embedded.controlplanes.supervision.supervisor import Program, ProgramState, Supervisor


async def keep_rolling(
    supervisor: Supervisor, programs: Sequence[Program], changed: Callable[[], None]
) -> tuple[list[ProgramState], bool]:
    """
    Keep programs running; the states in order, and whether all run as described.

    Of those that run with another digest only the first is restarted, once the others are healthy;
    ``changed`` is called when it is, so that the next call restarts the next one.
    """
    outdated = [p.key for p in programs if supervisor.differs(p)]
    found = {p.key: await supervisor.keep(p, changed) for p in programs if p.key not in outdated}
    if outdated and all(state.healthy for state in found.values()):
        first = next(p for p in programs if p.key == outdated[0])
        found[first.key] = await supervisor.keep(first, changed)
        outdated = outdated[1:]
    found |= {key: unchanged(supervisor.state(key)) for key in outdated}
    return [found[p.key] for p in programs], not outdated


def unchanged(state: ProgramState) -> ProgramState:
    """The state of a program that still runs as before; an earlier daemon may have started it."""
    return state if state.pid else ProgramState(healthy=True, message="")
