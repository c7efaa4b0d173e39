"""``python -m moxwell``."""

from moxwell.cli import main

main()
