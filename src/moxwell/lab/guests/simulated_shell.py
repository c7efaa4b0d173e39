"""
A simulated shell in a container of a simulated node.

Answers a few commands from what is known of the pod: its environment, addresses and mounts.
Programs do not run in the lab, so any other command fails with a text that says so.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.lab.guests.pods import pod_address

Json = Mapping[str, Any]
SHELLS = ("sh", "bash", "ash", "dash", "zsh")
NOT_FOUND, MAX_LINE = 127, 4096
NO_FILES = "simulated containers have no file system, files cannot be copied"
BANNER = (
    "This shell is simulated: the lab does not run the image {image}.\n"
    "Type help for the commands it knows.\n"
)


@dataclass(frozen=True, slots=True)
class ShellOutput:
    """What a command wrote, and its exit code."""

    out: str = ""
    error: str = ""
    code: int = 0


@dataclass(slots=True)
class SimulatedShell:
    """The shell of one container; ``folder`` and ``code`` change with its commands."""

    pod: Json
    container: Json
    node_release: str = "6.8.0-sim"
    folder: str = "/"
    code: int = 0
    exited: bool = field(default=False)

    @property
    def banner(self) -> str:
        return BANNER.format(image=self.container.get("image", ""))

    def execute(self, argv: list[str]) -> ShellOutput:
        """Run one program with its arguments, as ``kubectl exec`` does."""
        name = argv[0].rpartition("/")[2] if argv else ""
        if name in SHELLS and len(argv) > 2 and argv[1] in ("-c", "-ec", "-lc"):
            return self.line(argv[2])
        command = getattr(self, f"_{name}", None) if name in COMMANDS else None
        if command is None:
            known = ", ".join(COMMANDS)
            text = f"{name}: not found: this shell is simulated and knows {known}\n"
            return ShellOutput(error=text, code=NOT_FOUND)
        found: ShellOutput = command(argv[1:])
        return found

    def line(self, text: str) -> ShellOutput:
        """Run the commands of one line, separated by ``;`` or ``&&``."""
        out = error = ""
        for command, needs_success in _commands(text[:MAX_LINE]):
            if needs_success and self.code:
                continue
            result = self._one(command)
            out, error, self.code = out + result.out, error + result.error, result.code
            if self.exited:
                break
        return ShellOutput(out, error, self.code)

    def _one(self, text: str) -> ShellOutput:
        if any(sign in text for sign in "|<>`"):
            return ShellOutput(error="sh: pipes and redirections are not simulated\n", code=2)
        try:
            words = [self._expand(word) for word in shlex.split(text, comments=True)]
        except ValueError as problem:
            return ShellOutput(error=f"sh: {problem}\n", code=2)
        return self.execute(words) if words else ShellOutput(code=self.code)

    def _expand(self, word: str) -> str:
        values = {**self._environ(), "?": str(self.code)}
        for name in sorted(values, key=len, reverse=True):
            word = word.replace(f"${{{name}}}", values[name]).replace(f"${name}", values[name])
        return word

    # what is known of the container

    def _environ(self) -> dict[str, str]:
        own = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOSTNAME": self._host(),
            "KUBERNETES_SERVICE_PORT": "443",
            "HOME": "/root",
        }
        given = {
            str(row["name"]): str(row["value"])
            for row in self.container.get("env") or ()
            if "value" in row
        }
        return own | given

    def _host(self) -> str:
        spec, meta = self.pod["spec"], self.pod["metadata"]
        named = spec.get("nodeName") if spec.get("hostNetwork") else spec.get("hostname")
        return str(named or meta["name"])

    def _files(self) -> dict[str, str]:
        address = (self.pod.get("status") or {}).get("podIP") or pod_address(dict(self.pod))
        namespace = self.pod["metadata"]["namespace"]
        search = f"{namespace}.svc.cluster.local svc.cluster.local cluster.local"
        return {
            "/etc/hostname": f"{self._host()}\n",
            "/etc/hosts": f"127.0.0.1\tlocalhost\n{address}\t{self._host()}\n",
            "/etc/resolv.conf": f"search {search}\nnameserver 10.96.0.10\noptions ndots:5\n",
            "/etc/os-release": 'NAME="Simulated container"\nID=simulated\n',
        }

    def _folders(self) -> set[str]:
        mounts = {str(m["mountPath"]).rstrip("/") for m in self.container.get("volumeMounts") or ()}
        named = {"", "/bin", "/etc", "/proc", "/root", "/tmp", "/usr", "/var", *mounts}
        return named | {path.rpartition("/")[0] for path in named}

    def _path(self, name: str) -> str:
        parts: list[str] = []
        for part in f"{'' if name.startswith('/') else self.folder}/{name}".split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        return "/" + "/".join(parts)

    # commands

    def _help(self, args: list[str]) -> ShellOutput:
        return ShellOutput(f"simulated commands: {', '.join(COMMANDS)}\n")

    def _echo(self, args: list[str]) -> ShellOutput:
        plain = args[:1] == ["-n"]
        return ShellOutput(" ".join(args[1:] if plain else args) + ("" if plain else "\n"))

    def _env(self, args: list[str]) -> ShellOutput:
        return ShellOutput("".join(f"{k}={v}\n" for k, v in self._environ().items()))

    def _printenv(self, args: list[str]) -> ShellOutput:
        if not args:
            return self._env(args)
        found = [self._environ()[name] for name in args if name in self._environ()]
        return ShellOutput("".join(f"{v}\n" for v in found), code=int(len(found) < len(args)))

    def _hostname(self, args: list[str]) -> ShellOutput:
        if args == ["-i"]:
            return ShellOutput(self._files()["/etc/hosts"].split("\n")[1].split("\t")[0] + "\n")
        return ShellOutput(f"{self._host()}\n")

    def _uname(self, args: list[str]) -> ShellOutput:
        full = f"Linux {self._host()} {self.node_release} #1 SMP (simulated) x86_64 GNU/Linux"
        short = {"-r": self.node_release, "-n": self._host(), "-m": "x86_64", "-s": "Linux"}
        return ShellOutput((full if args == ["-a"] else short.get(" ".join(args), "Linux")) + "\n")

    def _pwd(self, args: list[str]) -> ShellOutput:
        return ShellOutput(f"{self.folder}\n")

    def _cd(self, args: list[str]) -> ShellOutput:
        path = self._path(args[0] if args else "/root")
        if path.rstrip("/") not in self._folders():
            return ShellOutput(error=f"sh: cd: {args[0]}: No such file or directory\n", code=1)
        self.folder = path
        return ShellOutput()

    def _ls(self, args: list[str]) -> ShellOutput:
        out = error = ""
        for name in [a for a in args if not a.startswith("-")] or [self.folder]:
            path = self._path(name).rstrip("/")
            known = {*self._folders(), *self._files()}
            if path in self._files():
                out += f"{name}\n"
            elif path in known:
                inside = {p.rpartition("/")[2] for p in known if p and p.rpartition("/")[0] == path}
                out += "".join(f"{row}\n" for row in sorted(inside))
            else:
                error += f"ls: {name}: No such file or directory\n"
        return ShellOutput(out, error, int(bool(error)))

    def _cat(self, args: list[str]) -> ShellOutput:
        out = error = ""
        for name in args:
            path = self._path(name)
            out += self._files().get(path, "")
            if path.rstrip("/") in self._folders():
                error += f"cat: {name}: Is a directory\n"
            elif path not in self._files():
                error += f"cat: {name}: No such file or directory\n"
        return ShellOutput(out, error, int(bool(error)))

    def _whoami(self, args: list[str]) -> ShellOutput:
        return ShellOutput("root\n")

    def _id(self, args: list[str]) -> ShellOutput:
        return ShellOutput("uid=0(root) gid=0(root) groups=0(root)\n")

    def _true(self, args: list[str]) -> ShellOutput:
        return ShellOutput()

    def _false(self, args: list[str]) -> ShellOutput:
        return ShellOutput(code=1)

    def _tar(self, args: list[str]) -> ShellOutput:
        return ShellOutput(error=f"tar: {NO_FILES}\n", code=2)

    def _exit(self, args: list[str]) -> ShellOutput:
        self.exited = True
        given = args[0] if args else ""
        return ShellOutput(code=int(given) % 256 if given.isdecimal() else self.code)


COMMANDS = (
    "help", "echo", "env", "printenv", "hostname", "uname", "pwd", "cd", "ls", "cat", "whoami",
    "id", "true", "false", "tar", "exit",
)  # fmt: skip


def _commands(text: str) -> list[tuple[str, bool]]:
    """The commands of a line, each with whether the one before must have succeeded."""
    found: list[tuple[str, bool]] = []
    lexer = shlex.shlex(text, posix=False, punctuation_chars=";&")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    needs = False
    try:
        tokens = list(lexer)
    except ValueError:
        return [(text, False)]  # the command reports the missing quotation mark
    for token in [*tokens, ";"]:
        if set(token) <= {";", "&"} and token:
            if words:
                found.append((" ".join(words), needs))
            words, needs = [], token == "&&"
        else:
            words.append(token)
    return found
