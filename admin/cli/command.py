"""The command and what hangs on it."""

import click

from admin.cli.installation import config, docs, release
from admin.cli.tenants import key, tenant


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tidings")
def main() -> None:
    """Tidings delivers notifications. Sends go through its API; tenants, keys and set-up through its ledger."""


for command in (tenant, key, release, config, docs):
    main.add_command(command)
