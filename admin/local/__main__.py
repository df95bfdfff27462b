"""`python -m admin.local up`: the whole product on this machine, with nothing else installed. See docs/local.md."""

import argparse
import os
import sys
from pathlib import Path

from admin.local.up import Local

CHECKOUT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the command named by the arguments."""
    # The processes inherit this environment, so it is handed on whole; settings are still read in one place.
    environment = dict(os.environ)  # noqa: TID251
    parser = argparse.ArgumentParser(prog="python -m admin.local", description=__doc__)
    parser.add_argument("command", choices=["up", "migrate"])
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".local", help="where the data is kept")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="where the Procfile is")
    given = parser.parse_args()
    local = Local(given.checkout.resolve(), folder=given.folder.resolve(), environment=environment)
    return local.up() if given.command == "up" else local.migrate()


if __name__ == "__main__":
    sys.exit(main())
