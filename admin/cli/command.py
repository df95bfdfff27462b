"""The command and what hangs on it."""

import click

from admin.cli.balance import books
from admin.cli.digest import digest
from admin.cli.installation import config, docs, release
from admin.cli.loadtest import loadtest
from admin.cli.operations import audit, operation
from admin.cli.pages import admin
from admin.cli.providers import provider
from admin.cli.queues import queue
from admin.cli.reconcile import reconcile
from admin.cli.requeue import requeue
from admin.cli.send import send
from admin.cli.sends import cancel, list_sends, pause, resume, show
from admin.cli.suppressions import suppression
from admin.cli.tenants import key, tenant


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tidings")
def main() -> None:
    """Tidings delivers notifications. Sends go through its API; tenants, keys and set-up through its ledger."""


_COMMANDS = (
    send,
    show,
    list_sends,
    cancel,
    pause,
    resume,
    tenant,
    key,
    suppression,
    requeue,
    operation,
    books,
    digest,
    provider,
    queue,
    reconcile,
    audit,
    admin,
    loadtest,
    release,
    config,
    docs,
)
for command in _COMMANDS:
    main.add_command(command)
