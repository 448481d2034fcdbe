"""``python -m hetsched`` is the command line."""

from hetsched.cli import main

main()
