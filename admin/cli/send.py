"""`tidings send`: a CSV, a text, and everybody in it hears of it."""

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

import click

from admin.cli.connection import with_api
from admin.cli.fault import CommandError
from admin.cli.screen import cell, say

if TYPE_CHECKING:
    from admin.cli.api_client import ApiClient
    from admin.cli.submission import Body

#: Bytes of a template file that are read; far above what an installation takes.
_TEMPLATE_MAX_BYTES = 32 * 1024 * 1024
#: Faults that are printed; the others are counted.
_SHOWN_FAULTS = 20


class Template(click.ParamType[str]):
    """Text as it is, or `@file`."""

    name = "text or @file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the file that an @ names."""
        if not isinstance(value, str) or not value.startswith("@"):
            return str(value)
        try:
            with Path(value[1:]).open("rb") as file:
                return file.read(_TEMPLATE_MAX_BYTES).decode("utf-8-sig")
        except OSError as error:
            self.fail(f"{value[1:]}: {error.strerror}", param, ctx)
        except UnicodeDecodeError:
            self.fail(f"{value[1:]} is not UTF-8 text", param, ctx)


class Moment(click.ParamType[datetime]):
    """A date and time; without an offset, of this machine's time zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Make it aware."""
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(str(value)).astimezone()
        except ValueError:
            self.fail("write it as 2027-03-28T09:00 or, with an offset, 2027-03-28T09:00:00+02:00", param, ctx)


class Param(click.ParamType[tuple[str, str]]):
    """`name=value`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Take it apart."""
        name, equals, content = str(value).partition("=")
        if not equals or not name:
            self.fail("write it as name=value", param, ctx)
        return name, content


@click.command()
@click.option("--csv", "csv_file", type=click.File("rb"), required=True, help="The recipients; - is standard input.")
@click.option("--subject", type=Template(), help="Subject of the e-mail, {{ placeholders }} as in the texts.")
@click.option("--text", type=Template(), help="The text, or @file with it.")
@click.option("--html", type=Template(), help="The HTML part, or @file with it.")
@click.option("--sms", is_flag=True, help="Send --text as SMS instead of an e-mail.")
@click.option("--from", "sender", metavar="ADDRESS", help="Sender; default: the tenant's.")
@click.option("--reply-to", metavar="ADDRESS", help="Where answers go.")
@click.option("--param", "params", type=Param(), multiple=True, help="A value for every recipient; repeatable.")
@click.option("--name", help="What the send is called in lists.")
@click.option("--at", type=Moment(), help="When to begin; without an offset, in this machine's time zone.")
@click.option("--valid-until", type=Moment(), help="What is not sent by then is not sent at all.")
@click.option("--urgent", is_flag=True, help="Take the lane of single sends.")
@click.option(
    "--on-invalid", type=click.Choice(["reject", "skip"]), default="reject", show_default=True,
    help="A bad row refuses everything, or is left aside and reported.",
)  # fmt: skip
@click.option("--idempotency-key", metavar="KEY", help="Repeat a submission whose answer was lost; see its message.")
@click.option("--yes", is_flag=True, help="Do not ask before sending.")
@click.option("--no-wait", is_flag=True, help="Return once it is accepted: from then on it is owed, whatever happens.")
@with_api
def send(api: "ApiClient", csv_file: IO[bytes], **given: Any) -> None:
    """
    Send to everybody in a CSV, and wait until it is settled.

    The first row names the columns. One is the address (`email`, `phone`, `to`, …); the others fill the
    {{ placeholders }}; a column `reference` is your own id. Comma, semicolon or tab; UTF-8 or UTF-16.

    Exit code 0: accepted, and, unless --no-wait, settled. 1: refused or unreachable. 2: wrong usage.
    """
    from admin.cli.api_client import is_idempotency_key
    from admin.cli.submission import write_body

    channel, content = _content(given)
    envelope = _envelope(given)
    key = f"command-{uuid4()}" if given["idempotency_key"] is None else given["idempotency_key"]
    if not is_idempotency_key(key):  # an empty one is a variable never set: a new key would send a second time
        raise click.UsageError("--idempotency-key is 1 to 255 visible ASCII characters")
    api.get("/sends?limit=1")  # a wrong key or address shows before a long file is read
    with tempfile.TemporaryFile() as file:  # readable by nobody else, and gone with this process
        body = write_body(
            file, csv_file, channel=channel, envelope=envelope, content=content, shared_params=dict(given["params"])
        )
        is_doomed = bool(body.left_out.fault_count) and given["on_invalid"] == "reject"
        if body.left_out.fault_count and not is_doomed:
            _show_faults(body.explain([]), body.left_out.fault_count)
            say("These rows are left out.", err=True)
        if not is_doomed:
            _confirm(api, body, channel=channel, yes=given["yes"] or csv_file.isatty())
        accepted = _submit(api, file, body, key=key)
    _report_accepted(accepted)
    _show_bad_rows(api, accepted, body)
    if given["no_wait"] or (given["at"] is not None and given["at"] > datetime.now().astimezone()):
        say(accepted["id"])
        say(f"Look at it with: tidings show {accepted['id']}", err=True)
        return
    finish(api, accepted["id"])


def finish(api: "ApiClient", send_id: str) -> None:
    """Wait until a send is settled and print its books; Ctrl-C and a lost server end the waiting, not the send."""
    from admin.cli.api_client import Unreachable
    from admin.cli.books import summary
    from admin.cli.waiting import wait_until_settled

    go_on = f"The send goes on. Look at it with: tidings show {send_id}; stop it with: tidings cancel {send_id}"
    try:
        last = wait_until_settled(api, send_id)
    except KeyboardInterrupt:
        say(f"\n{go_on}", err=True)
        raise SystemExit(130) from None
    except Unreachable as fault:
        raise CommandError(f"{fault.message}. {go_on}") from None
    say(summary(last))
    if last["status"] == "paused":
        raise CommandError(f"the send is paused: {cell(last['pause_reason'])}. Go on with: tidings resume {send_id}")


def _content(given: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    if given["sms"]:
        unfit = [f"--{name.replace('_', '-')}" for name in ("subject", "html", "reply_to") if given[name] is not None]
        if unfit:
            raise click.UsageError(f"an SMS has no {' and no '.join(unfit)}")
        if given["text"] is None:
            raise click.UsageError("an SMS needs --text")
    elif given["subject"] is None or (given["text"] is None and given["html"] is None):
        raise click.UsageError("an e-mail needs --subject, and --text or --html or both")
    fields = {"from": "sender", "reply_to": "reply_to", "subject": "subject", "text": "text", "html": "html"}
    content = {field: given[option] for field, option in fields.items() if given[option] is not None}
    return "sms" if given["sms"] else "email", content


def _envelope(given: Mapping[str, Any]) -> dict[str, Any]:
    envelope: dict[str, Any] = {"on_invalid": given["on_invalid"]}
    if given["name"] is not None:
        envelope["name"] = given["name"]
    if given["urgent"]:
        envelope["urgent"] = True
    for field, option in (("send_at", "at"), ("valid_until", "valid_until")):
        if given[option] is not None:
            envelope[field] = given[option].isoformat(timespec="seconds")
    return envelope


def _confirm(api: "ApiClient", body: "Body", *, channel: str, yes: bool) -> None:
    if yes or not sys.stdin.isatty():
        return
    what = "an SMS" if channel == "sms" else "an e-mail"
    click.confirm(f"Send {what} to {_counted(body.count, 'recipient')} through {api.url}?", abort=True)


def _submit(api: "ApiClient", file: IO[bytes], body: "Body", *, key: str) -> dict[str, Any]:
    from admin.cli.api_client import Refusal, Unreachable, is_undecided
    from admin.cli.waiting import gauge

    try:
        with gauge("Handing in", body.size, is_bytes=True) as bar:
            return api.submit(file, body.size, key=key, on_progress=bar.show, on_replay=_tell_replay)
    except (Unreachable, Refusal, KeyboardInterrupt) as fault:
        if isinstance(fault, Refusal) and not is_undecided(fault):
            own = body.left_out.fault_count
            _show_faults(body.explain(fault.faults), fault.fault_count - (len(body.rows) - body.count) + own)
            raise
        said = "" if isinstance(fault, KeyboardInterrupt) else f"{fault.message.rstrip('.')}. "
        raise CommandError(
            f"{said}It may or may not be accepted. To repeat it without sending twice, run the same command with "
            f"--idempotency-key {key}"
        ) from None


def _tell_replay() -> None:
    say(
        "This was handed in before under the same Idempotency-Key: it is the same send, nothing is sent twice.",
        err=True,
    )


def _show_bad_rows(api: "ApiClient", accepted: Mapping[str, Any], body: "Body") -> None:
    """
    List the first rows that were stored as failed, by their rows in the spreadsheet.

    Where duplicates were dropped, the installation's row numbers no longer lead back to the file's: then by their ids.
    """
    from admin.cli.api_client import Refusal, Unreachable

    count = sum(accepted["invalid"].values())
    if not count:
        return
    faults, found = [], []
    with suppress(Refusal, Unreachable):  # it is accepted, and the line below says how to ask again
        found = api.get(f"/sends/{accepted['id']}/deliveries?status=failed&limit={_SHOWN_FAULTS}")["deliveries"]
    for delivery in found:
        place = int(delivery["id"].rpartition(".")[2]) - 1
        is_known = place < body.count and not any(accepted["duplicates"].values())
        where = f"row {body.rows[place]}" if is_known else f"delivery {delivery['id']}"
        faults.append(f"{where}, {delivery['last_error']}")
    _show_faults(faults, count)
    say(f"  List them with: tidings show {accepted['id']} --status failed", err=True)


def _show_faults(faults: Sequence[str], count: int) -> None:
    for fault in faults[:_SHOWN_FAULTS]:
        say(f"  {cell(fault)}", err=True)
    if count > _SHOWN_FAULTS:
        say(f"  … and {count - _SHOWN_FAULTS:,} more", err=True)


def _report_accepted(accepted: Mapping[str, Any]) -> None:
    counts = {word: sum(accepted[word].values()) for word in ("accepted", "duplicates", "invalid")}
    said = [f"Accepted {counts['accepted']:,} as send {accepted['id']}"]
    if counts["duplicates"]:
        said.append(_counted(counts["duplicates"], "duplicate") + " dropped")
    if counts["invalid"]:
        said.append(_counted(counts["invalid"], "bad row") + " stored as failed")
    if accepted["segments"]:
        said.append(_counted(accepted["segments"], "SMS segment"))
    say("; ".join(said) + ".", err=True)
    for note in accepted["notes"]:
        say(f"Note: {cell(note)}.", err=True)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
