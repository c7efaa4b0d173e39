"""Renders the reference of all commands as Markdown."""

import re


def render() -> str:
    """Every command with its options, and the exit codes."""
    import typer
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from moxwell.cli import commands

    command = get_command(commands.make_app())
    context = typer.Context(command, info_name="moxwell")
    text = get_docs_for_click(obj=command, ctx=context, name="moxwell", title="Commands")
    codes = (
        "Exit codes: 0 success, 1 failure, 2 wrong usage, 70 a bug in Moxwell, "
        "75 try again later.\n"
    )
    text = text.replace("# Commands\n", f"# Commands\n\n{codes}", 1)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
