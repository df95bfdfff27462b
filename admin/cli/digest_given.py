"""What a digest channel is given on the command line, and what that makes of it."""

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from admin.cli.fault import CommandError
from admin.cli.screen import say
from admin.cli.stores import read_settings

if TYPE_CHECKING:
    from shared.domain.digest_channels import Setup
    from shared.ledger.digest_channels import Wishes

#: What may be a secret, by option: each is read from a variable too, and typed in where it is given as -. A command
#: that changes a channel reads a variable only where its option is -: one that was left set must not move a channel.
SECRETS = {
    "url": "Address of the endpoint.",
    "token": "Token of ntfy (where it needs one) or Gotify.",
    "auth_header": "Header that a webhook is sent with, as `Authorization: Bearer …`.",
    "signing_secret": "Secret that webhooks are signed with: whsec_ and base64.",
}
_SEVERITIES = ("info", "low", "medium", "high", "critical")


def read_given(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of what a channel is; it gets them by name, `to` as a list."""

    @click.option("--to", "to_file", type=click.File("r", encoding="utf-8-sig"), metavar="FILE",
                  help="E-mail addresses, one a line; - is stdin.")  # fmt: skip
    @click.option("--from", "from_", metavar="SENDER", help="Sender of e-mail digests; default: the tenant's.")
    @functools.wraps(command)
    def read(to_file: IO[str] | None, from_: str | None, **given: Any) -> Any:
        changes = click.get_current_context().command.name == "edit"
        for name in SECRETS:
            given[name] = _read_secret(name, given[name], changes=changes)
        given["to"] = [line.strip() for line in to_file if line.strip()] if to_file else None
        return command(**given, **{"from": from_})

    for name, words in reversed(SECRETS.items()):
        variable = _variable(name)
        read = click.option(f"--{name.replace('_', '-')}", envvar=variable, help=f"{words} [{variable}]")(read)
    return read


def _variable(name: str) -> str:
    return f"TIDINGS_CHANNEL_{name.upper()}"


def _read_secret(name: str, value: str | None, *, changes: bool) -> str | None:
    context = click.get_current_context()
    if value == "-":
        asked = next(option for option in context.command.params if option.name == name)
        kept = asked.value_from_envvar(context) if changes else None
        return str(kept or click.prompt(name.replace("_", " "), hide_input=True, err=True))
    if changes and context.get_parameter_source(name) is ParameterSource.ENVIRONMENT:
        option = f"--{name.replace('_', '-')} -"
        say(f"{_variable(name)} is set and was not used; `{option}` takes it.", err=True)
        return None
    return value


def what_it_hears(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a channel's filter."""
    command = click.option("--min-severity", type=click.Choice(_SEVERITIES), help="The mildest it hears of. [info]")(
        command
    )
    return click.option("--kind", "kinds", multiple=True, help="Hear of this kind alone; may be repeated.")(command)


def own_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that stand over the installation's settings."""
    for option, name in (
        ("--retention-days", "NOTIFICATION_RETENTION_DAYS"),
        ("--max-attempts", "MAX_DELIVERY_ATTEMPTS"),
        ("--retry-base-delay-ms", "RETRY_BASE_DELAY_MS"),
    ):
        command = click.option(option, metavar="N", help=f"In place of {name}.")(command)
    return command


def asked_of(
    type_name: str,
    given: dict[str, Any],
    *,
    name: str | None = None,
    partial: bool = False,
    unset: Collection[str] = (),
) -> "tuple[Setup, Wishes]":
    """Check what a channel of a type was given; `partial` where only what changes of it is, `unset` what it loses."""
    from shared.domain.digests import ChannelType
    from shared.domain.endpoints import host_list
    from shared.ledger import digest_setup

    settings = read_settings(or_local=True)
    return digest_setup.read(
        ChannelType(type_name),
        given,
        plain_http=host_list(settings.digest_plain_http_hosts),
        private=host_list(settings.digest_private_hosts),
        name=name,
        partial=partial,
        unset=unset,
    )


@contextmanager
def refusals() -> Iterator[None]:
    """Tell what is wrong with a channel as this command's failure, a line for each option."""
    from shared.domain.digest_channels import ChannelError

    try:
        yield
    except ChannelError as error:
        options = {"kinds": "kind"}
        faults = [f"--{options.get(name, name).replace('_', '-')} {fault}" for name, fault in error.faults.items()]
        raise CommandError("\n  ".join(["the channel cannot be so:", *faults])) from None
