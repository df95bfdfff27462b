"""
`python -m workers --queues email sms --threads 8`: dramatiq's command over `workers.main`, one process of it.

Its main process writes in our format, and says why it ends when it does not end with 0: what a killed worker cannot
say itself, nobody else would.
"""

import logging
import shutil
import sys

from dramatiq import cli

from shared import exits, log, settings

#: dramatiq's own handlers are left out (`--skip-logging`): everything is written by ours. Its wait for its threads too
#: (`--worker-shutdown-timeout`): workers/middleware/drain.py has waited by then.
_OURS = ("workers.main", "--processes", "1", "--skip-logging", "--worker-shutdown-timeout", "0")


def main() -> None:
    """Run until told to stop."""
    try:
        loaded = settings.load()
    except settings.SettingsError as error:
        sys.exit(str(error))
    log.configure(loaded, process="worker main")
    logging.getLogger("dramatiq.MainProcess").setLevel(logging.WARNING)
    # SIGHUP makes dramatiq replace itself by `argv`: that must be a command.
    sys.argv = [shutil.which("dramatiq") or sys.argv[0], *_OURS, *sys.argv[1:]]
    with exits.reported():
        sys.exit(cli.main())  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
