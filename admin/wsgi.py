"""What gunicorn loads: `gunicorn admin.wsgi:app`. Reads the settings once; a faulty set-up ends in one message."""

import atexit

from gunicorn.errors import AppImportError  # type: ignore[import-untyped]  # it has no types

from admin import extensions
from admin.app import create_app
from shared import log
from shared.ledger import queries
from shared.settings import SettingsError, load

try:
    _settings = load()
except SettingsError as error:
    # The one exception that gunicorn shows without a stack and does not answer by starting the worker again.
    raise AppImportError(str(error)) from None

log.configure(_settings, process="web")
queries.check()
app = create_app(_settings)
# At the interpreter's end the pool's threads can no longer be stopped in order, and a stop would wait for them.
atexit.register(extensions.installed(app).close)
