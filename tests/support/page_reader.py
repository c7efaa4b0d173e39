"""A reader who follows the pages of the documentation: each command, in order, in one folder."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from envtest import locate
from support.lab_instance import COMMAND, Instance
from support.page_blocks import MAX_FOLLOW, NotRun, PageCommand, PageFile, missing_lines, page_steps

ROOT = Path(__file__).parents[2]
SECONDS, PATIENCE = 300, 240
READS = re.compile(r"moxwell (status|explain|get|doctor|verify)( |$)|kubectl .*get ")


@dataclass
class PageReader:
    """A shell in a folder of its own, with one instance."""

    instance: Instance
    folder: Path
    substituted: Callable[[str], str] = lambda command: command
    answers: Mapping[str, str] = field(default_factory=dict)  # what is typed, by command
    background: list[int] = field(default_factory=list)  # process groups of commands with ``&``

    @property
    def env(self) -> dict[str, str]:
        path = f"{COMMAND.parent}:{locate.program('kubectl').parent}:{os.environ['PATH']}"
        own = {"PATH": path, "EDITOR": "true", "HOME": str(self.folder), "COLUMNS": "80"}
        return {**self.instance.env, **own}

    def follow(self, page: str) -> int:
        """Do everything on a page; returns the number of commands."""
        count = 0
        for step in page_steps((ROOT / page).read_text()):
            match step:
                case PageFile():
                    (self.folder / step.name).write_text(self.substituted(step.text))
                case PageCommand():
                    self.run(step)
                    count += 1
                case NotRun():
                    continue
        return count

    def run(self, step: PageCommand) -> None:
        """Run one command as the page shows it; its output must have the shown lines."""
        command = self.substituted(step.command)
        code, output = self.shell(command, follows=step.follows)
        end = time.monotonic() + PATIENCE
        while READS.match(command) and missing_lines(step.output, output):
            if time.monotonic() > end:
                break
            time.sleep(1)  # a reader repeats a command that shows a state
            code, output = self.shell(command, follows=step.follows)
        assert "Traceback" not in output, output
        shown = f"$ {command}\n{output}\n{self.instance.log() if code else ''}"
        assert (code != 0) == step.must_fail, shown
        assert missing_lines(step.output, output) == [], shown

    def shell(self, command: str, *, follows: bool = False) -> tuple[int, str]:
        """Exit code and output; a command that follows a state is interrupted."""
        process = subprocess.Popen(
            ["env", "--default-signal=INT", "bash", "-c", command],
            cwd=self.folder, env=self.env, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        if command.endswith("&"):
            self.background.append(process.pid)
        try:
            typed = self.answers.get(command, "")
            output, _ = process.communicate(typed, timeout=MAX_FOLLOW if follows else SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=30)
            return (0 if follows else 1), output
        return process.returncode, output

    def leave(self) -> None:
        """Stop the instance and what was started in the background."""
        self.instance.run("down", check=False)
        for group in self.background:
            os.killpg(group, signal.SIGTERM)
