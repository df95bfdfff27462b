"""
The `tidings` command.

Modules import what they need inside the command that needs it, so that `tidings --help` answers at once.
Exit codes: 0 done, 1 failed (the reason is on standard error), 2 wrong usage, 130 interrupted.
"""

from admin.cli.command import main

__all__ = ["main"]
