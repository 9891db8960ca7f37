"""`python -m mirrormark` is the command `mirrormark`."""

from mirrormark.cli import main

main()
