"""`/admin/monitoring/digests`: digest channels, what was told on them, and dead letters told again."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode
from uuid import UUID

import redis
from flask import abort, flash, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import Panel, View, add_page
from admin.monitoring.snapshot_cache import outdate
from shared.domain.digests import NotificationStatus
from shared.ledger import digest_channels, digest_runs, digest_setup, notifications
from shared.ledger.digest_channels import DigestChannel
from shared.ledger.digest_runs import DigestRun

_PAGE_SIZE, _MESSAGES = 50, 10
_LONGEST_WORD, _REASON_MAX = 200, 500
ACTIONS = ("test", "enable", "disable", "requeue")
#: Word and shape of each state.
_STATES = {
    "pending": ("pending", "busy"),
    "retrying": ("retrying", "warn"),
    "sent": ("sent", "ok"),
    "suppressed": ("known before", "off"),
    "dead_lettered": ("dead-lettered", "bad"),
}
_MESSAGE_STATES = {
    "calling": ("in a call", "busy"),
    "frozen": ("outcome unknown", "warn"),
    "sent": ("taken", "ok"),
    "failed": ("not taken", "bad"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """The filter as the address has it; a state that is none is left out."""

    channel: str
    kind: str
    status: NotificationStatus | None

    @property
    def is_empty(self) -> bool:
        """Whether everything fits."""
        return not (self.channel or self.kind or self.status)

    def query(self, **more: str) -> str:
        """The query string of this filter, with what is added."""
        given = {"channel": self.channel, "kind": self.kind, "status": self.status, **more}
        return urlencode({name: value for name, value in given.items() if value})


def _found_run(view: View) -> DigestRun:
    try:
        id_ = UUID(view.args["id"])
    except (KeyError, ValueError):
        abort(HTTPStatus.NOT_FOUND)
    with services().reading.transaction() as connection:
        found = digest_runs.find(connection, id_)
    if found is None:
        abort(HTTPStatus.NOT_FOUND)
    return found


def _run(view: View) -> Mapping[str, object]:
    return {"run": _found_run(view)}


def _is_open(view: View) -> bool:
    return _found_run(view).result is None


add_page("digests", Panel("digest_channels", "Channels", ("digests",)), tab="Overview")
add_page("digest_run", Panel("digest_run", "Result", context=_run), tab="Overview", is_busy=_is_open)


@pages.get("/digests")
@reads
def digest_page() -> str:
    """Channels, and what was told on them, newest first."""
    asked = _asked()
    before = request.args.get("before", default=notifications.NEWEST, type=int)
    before = min(max(before, 0), notifications.NEWEST)
    with services().reading.transaction() as connection:
        channels = digest_channels.every(connection)
        found = notifications.history(
            connection,
            limit=_PAGE_SIZE + 1,
            before=before,
            channel=asked.channel or None,
            kind=asked.kind or None,
            status=asked.status,
        )
        messages = notifications.messages(connection, limit=_MESSAGES, channel=asked.channel or None)
    return page(
        "digests",
        "monitoring/digests.html",
        asked=asked,
        channels=channels,
        found=found[:_PAGE_SIZE],
        older=found[_PAGE_SIZE - 1].id if len(found) > _PAGE_SIZE else None,
        is_first=before == notifications.NEWEST,
        messages=messages,
        states=_STATES,
        message_states=_MESSAGE_STATES,
    )


@pages.get("/digests/channels/<name>/<action>")
@acts
def ask_channel(name: str, action: str) -> str:
    """Say what an action on a channel will do, and ask."""
    channel = _channel(name, action)
    one = request.args.get("id", type=int)
    return page("digests", "monitoring/digest_ask.html", channel=channel, action=action, one=one)


@pages.post("/digests/channels/<name>/<action>")
@acts
def act_on_channel(name: str, action: str) -> AnyResponse:
    """Do it; audited."""
    channel = _channel(name, action)
    if action == "test":
        return _ask_worker(channel)
    with services().ledger.transaction() as connection:
        if action == "requeue":
            one = request.form.get("id", type=int)
            again = digest_setup.requeue(
                connection, channel, ids=None if one is None else [one], reason=_reason(), operator=operator()
            )
            said = f"{again:,} to be told again, with the next run" if again else "there was no dead letter to tell"
        else:
            done = digest_setup.switch(connection, channel, on=action == "enable", operator=operator())
            said = f"{action}d" if done else f"was {action}d already"
    flash(f"{channel.name}: {said}.")
    outdate()
    services().doorbell.ring("digests", "digest_channels")
    return redirect(url_for("monitoring.digest_page", channel=channel.name), code=HTTPStatus.SEE_OTHER)


@pages.post("/digests/run")
@acts
def run_dispatch() -> AnyResponse:
    """Have a worker tell every channel what is due now."""
    return _ask_worker(None)


@pages.get("/digests/runs/<uuid:run_id>")
@reads
def digest_run_page(run_id: UUID) -> str:
    """What a test, or a run that somebody asked for, came to."""
    with services().reading.transaction() as connection:
        run = digest_runs.find(connection, run_id)
    if run is None:
        abort(HTTPStatus.NOT_FOUND)
    return page("digest_run", "monitoring/digest_run.html", path={"id": str(run_id)}, run=run)


def _ask_worker(channel: DigestChannel | None) -> AnyResponse:
    with services().ledger.transaction() as connection:
        run_id = digest_setup.ask_run(connection, operator=operator(), channel=channel)
    try:
        services().jobs.digest_run(run_id)
    except redis.RedisError:
        flash("Redis does not answer: no worker can be told. Nothing was done.", "error")
        return redirect(url_for("monitoring.digest_page"), code=HTTPStatus.SEE_OTHER)
    return redirect(url_for("monitoring.digest_run_page", run_id=run_id), code=HTTPStatus.SEE_OTHER)


def _channel(name: str, action: str) -> DigestChannel:
    with services().reading.transaction() as connection:
        found = digest_channels.find(connection, name.replace("\0", "")) if action in ACTIONS else None
    if found is None:
        abort(HTTPStatus.NOT_FOUND)
    return found


def _asked() -> Asked:
    status = request.args.get("status", "")
    known = status in list(NotificationStatus)
    return Asked(_word("channel"), _word("kind"), NotificationStatus(status) if known else None)


def _word(name: str) -> str:
    return request.args.get(name, "").replace("\0", "").strip()[:_LONGEST_WORD]


def _reason() -> str | None:
    return " ".join(request.form.get("reason", "").replace("\0", "").split())[:_REASON_MAX] or None
