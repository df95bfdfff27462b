"""`python -m admin.cli`: the `tidings` command where its script is not on the path."""

from admin.cli.command import main

main(prog_name="tidings")
