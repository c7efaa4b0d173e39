"""
Compiles Moxwell and the packages it needs to bytecode, as pip does when it installs a wheel.

Without bytecode every process would compile its modules at its start, which a test environment may
are configured to do, and which costs CPU time and memory that no installation needs.
"""

import compileall
import os
import re
from importlib import metadata
from pathlib import Path

import moxwell

NAME = re.compile(r"[\w.-]+")


def compile_all() -> None:
    """Compile what is not up to date; processes started from now on use the bytecode."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for folder in sorted({Path(moxwell.__file__).parent, *_folders("moxwell", set())}):
        compileall.compile_dir(folder, quiet=2)


def _folders(distribution: str, seen: set[str]) -> set[Path]:
    """The package folders of a distribution and of those that it requires."""
    seen.add(distribution)
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return set()  # only needed on another platform
    tops = {file.parts[0] for file in found.files or () if file.suffix == ".py"}
    folders = {Path(str(found.locate_file(top))) for top in tops if not top.endswith(".py")}
    for text in found.requires or ():
        name = NAME.match(text)
        if name is not None and "extra ==" not in text and name[0] not in seen:
            folders |= _folders(name[0], seen)
    return {folder for folder in folders if folder.is_dir()}
