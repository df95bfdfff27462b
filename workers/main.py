"""What `dramatiq workers.main` loads: settings, broker, then the actors, each declared once."""

import sys

import dramatiq

from shared import exits, log, settings
from shared.ledger import queries
from workers.actors import chain, digest, due_work, housekeeping, ingest, operate, prove, reconcile, retention
from workers.actors.senders import name_unconfigured
from workers.broker import make_worker


def _process_name(arguments: list[str]) -> str:
    """`worker` and the queues it was told to consume."""
    for flag in ("-Q", "--queues"):
        if flag in arguments:
            names = []
            for name in arguments[arguments.index(flag) + 1 :]:
                if name.startswith("-"):
                    break
                names.append(name)
            return f"worker {'+'.join(names)}"
    return "worker"


try:
    _settings = settings.load()
except settings.SettingsError as error:
    sys.exit(str(error))
_process = _process_name(sys.argv)
log.configure(_settings, process=_process)
exits.report_at_end()
queries.check()
broker, runtime = make_worker(_settings, process=_process)
dramatiq.set_broker(broker)
name_unconfigured(_settings)
for _actor in (ingest, chain, due_work, housekeeping, operate, prove, reconcile, digest, retention):
    _actor.register(broker, runtime)
