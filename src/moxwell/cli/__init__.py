"""
The command line: parse, ask, print.

One file per noun. Each command does its imports when it runs, so that ``moxwell --help`` is quick.
Whatever Moxwell raises on purpose ends as one sentence on standard error and the exit code of its
class: 0 done, 1 failed, 2 usage, 70 a bug of ours, 75 try again.
"""

import sys

from moxwell import errors


def main() -> None:
    """Run one command and leave with its exit code."""
    from moxwell.cli import commands

    try:
        commands.app()
    except errors.MoxwellError as error:
        sys.exit(_tell(error))
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


def _tell(error: errors.MoxwellError) -> int:
    """Print what went wrong and return the exit code."""
    from rich.console import Console
    from rich.text import Text

    line = Text.assemble(("error: ", "bold red"), str(error), (f"  ({error.reason})", "dim"))
    Console(stderr=True, soft_wrap=True).print(line)
    return error.exit_code
