"""
A minimal shell interpreter for ``guest-exec`` in the built-in guest.

``run`` interprets an argument vector against files in memory and returns output, exit code and
duration. It supports sequences (``;``, ``&&``, ``||``), redirections and ``$$``.
"""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

COMMANDS = ("echo", "sh", "cat", "uname", "sleep", "head", "poweroff", "kill", "true", "false")
FOLDERS = ("", "/bin", "/dev", "/etc", "/proc", "/root", "/run", "/sys", "/tmp", "/var")


@dataclass(slots=True)
class CommandResult:
    """The result of a command."""

    out: bytes = b""
    err: bytes = b""
    code: int = 0
    signal: int | None = None
    seconds: float = 0.0
    power_off: bool = False
    ended: bool = False  # an ``exit`` or a signal ended the script


@dataclass(slots=True)
class ShellEnvironment:
    """The files and properties that commands can read and change."""

    files: dict[str, bytes] = field(default_factory=dict)
    release: str = ""
    hostname: str = ""

    def open_error(self, path: str, *, write: bool) -> str | None:
        """The error of opening a file, or None."""
        if path in FOLDERS or path == "/":
            return "Is a directory"
        if write:
            known = path.rpartition("/")[0] in FOLDERS
            return None if known else "No such file or directory"
        return None if path in self.files else "No such file or directory"


def is_known(name: str) -> bool:
    return name.rpartition("/")[2] in COMMANDS


def run(env: ShellEnvironment, argv: list[str], stdin: bytes = b"", pid: int = 0) -> CommandResult:
    """Run one command."""
    name = argv[0].rpartition("/")[2]
    if name == "sh" and "-c" in argv:
        return script(env, argv[argv.index("-c") + 1], stdin, pid)
    found = _BUILTIN.get(name)
    if found is None:
        return CommandResult(err=f"sh: {argv[0]}: not found\n".encode(), code=127)
    return found(env, argv[1:], stdin)


_SEQUENCE = re.compile(r"\s*(;|&&|\|\||\n)\s*")


def script(env: ShellEnvironment, text: str, stdin: bytes, pid: int) -> CommandResult:
    """Run a script line by line."""
    total = CommandResult()
    parts = _SEQUENCE.split(text.strip())
    joiner = ";"
    for at, part in enumerate(parts):
        if at % 2:
            joiner = part
            continue
        if not part or (joiner == "&&" and total.code) or (joiner == "||" and not total.code):
            continue
        _add(total, _command(env, part.replace("$$", str(pid)), stdin, pid))
        if total.ended:
            break
    return total


def _add(total: CommandResult, one: CommandResult) -> None:
    total.out, total.err = total.out + one.out, total.err + one.err
    total.code, total.signal, total.ended = one.code, one.signal, one.ended
    total.seconds += one.seconds
    total.power_off = total.power_off or one.power_off


_REDIRECT = re.compile(r"(\d?)(>>?)(&\d)?(.*)")


def _command(env: ShellEnvironment, text: str, stdin: bytes, pid: int) -> CommandResult:
    argv, targets = _split(shlex.split(text))
    if not argv:
        return CommandResult()
    if argv[0] == "exit":
        return CommandResult(code=int(argv[1]) if len(argv) > 1 else 0, ended=True)
    if argv[0] == "kill" and str(pid) in argv[1:]:
        number = next((int(w[1:]) for w in argv if re.fullmatch(r"-\d+", w)), 15)
        return CommandResult(signal=number, ended=True)
    return _redirected(env, run(env, argv, stdin, pid), targets)


def _split(words: list[str]) -> tuple[list[str], list[tuple[bool, str]]]:
    """Split into words and redirections: (append, target); a target is ``&1``, ``&2`` or a path."""
    argv: list[str] = []
    targets: list[tuple[bool, str]] = []
    rest = iter(words)
    for label in rest:
        match = _REDIRECT.fullmatch(label)
        if match is None:
            argv.append(label)
        else:
            targets.append((match[2] == ">>", match[3] or match[4] or next(rest, "")))
    return argv, targets


def _redirected(
    env: ShellEnvironment, found: CommandResult, targets: list[tuple[bool, str]]
) -> CommandResult:
    for append, target in targets:
        if target == "&2":
            found.err, found.out = found.err + found.out, b""
        elif target == "&1":
            found.out, found.err = found.out + found.err, b""
        else:
            old = env.files.get(target, b"") if append else b""
            if target != "/dev/null":
                env.files[target] = old + found.out
            found.out = b""
    return found


def _echo(env: ShellEnvironment, args: list[str], stdin: bytes) -> CommandResult:
    bare = args[:1] == ["-n"]
    text = " ".join(args[1:] if bare else args)
    return CommandResult(out=(text if bare else text + "\n").encode())


def _cat(env: ShellEnvironment, args: list[str], stdin: bytes) -> CommandResult:
    found = CommandResult()
    for path in args or ["-"]:
        if path == "-":
            found.out += stdin
            continue
        problem = env.open_error(path, write=False)
        if problem is None:
            found.out += env.files[path]
        else:
            found.err += f"cat: can't open '{path}': {problem}\n".encode()
            found.code = 1
    return found


def _head(env: ShellEnvironment, args: list[str], stdin: bytes) -> CommandResult:
    count, lines, paths = None, 10, []
    rest = iter(args)
    for label in rest:
        if label == "-c":
            count = int(next(rest, "0"))
        elif label == "-n":
            lines = int(next(rest, "10"))
        else:
            paths.append(label)
    if paths[:1] == ["/dev/zero"]:
        return CommandResult(out=bytes(count or 0))
    found = _cat(env, paths, stdin)
    found.out = (
        found.out[:count]
        if count is not None
        else b"".join(found.out.splitlines(keepends=True)[:lines])
    )
    return found


def _uname(env: ShellEnvironment, args: list[str], stdin: bytes) -> CommandResult:
    words = {
        "-s": "Linux",
        "-n": env.hostname,
        "-r": env.release,
        "-m": "x86_64",
        "-a": f"Linux {env.hostname} {env.release} x86_64 GNU/Linux",
    }
    return CommandResult(out=(words.get(args[0] if args else "-s", "Linux") + "\n").encode())


def _sleep(env: ShellEnvironment, args: list[str], stdin: bytes) -> CommandResult:
    return CommandResult(seconds=float(args[0]) if args else 0.0)


def _power_off(env: ShellEnvironment, args: list[str], stdin: bytes) -> CommandResult:
    return CommandResult(power_off=True)


def _code(number: int) -> Callable[[ShellEnvironment, list[str], bytes], CommandResult]:
    return lambda env, args, stdin: CommandResult(code=number)


_BUILTIN: dict[str, Callable[[ShellEnvironment, list[str], bytes], CommandResult]] = {
    "echo": _echo,
    "cat": _cat,
    "head": _head,
    "uname": _uname,
    "sleep": _sleep,
    "poweroff": _power_off,
    "true": _code(0),
    "false": _code(1),
    "kill": _code(0),
}
