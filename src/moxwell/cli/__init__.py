"""
The command line: parses arguments, calls the daemon or starts ``app``, prints.

Commands import what they need when they run, so that ``moxwell --help`` is fast. An error of
:mod:`moxwell.errors` is printed as one line on standard error; the exit code is that of its class:
0 success, 1 failure, 2 wrong usage, 70 a bug in Moxwell, 75 try again.
"""

import os
import sys

from moxwell import errors


def main() -> None:
    """Run one command and exit with its code."""
    if sys.argv[1:3] == ["cluster", "credential"] and _print_credential():
        return
    try:
        from moxwell.cli import commands

        commands.make_app(sys.argv[1:])()
    except errors.MoxwellError as error:
        sys.exit(_print_error(error))
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


def _print_credential() -> bool:
    """Answer kubectl's exec plugin; False leaves it to the command."""
    from moxwell.cli import quick_credential

    found = quick_credential.find_credential(sys.argv[1:], os.environ)
    if found:
        sys.stdout.write(f"{found}\n")
    return bool(found)


def _print_error(error: errors.MoxwellError) -> int:
    """Print an error and return its exit code."""
    from rich.console import Console
    from rich.text import Text

    from moxwell.cli import program

    text = program.current().localize(str(error))
    line = Text.assemble(("error: ", "bold red"), text, (f"  ({error.reason})", "dim"))
    Console(stderr=True, soft_wrap=True).print(line)
    return error.exit_code
