"""`/admin/monitoring/digests`: digest channels and their last messages; testing and switching them, running now."""

from collections.abc import Mapping
from http import HTTPStatus
from uuid import UUID

import redis
from flask import abort, flash, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import Panel, View, add_page
from admin.monitoring.reason import LONGEST, given_reason
from admin.monitoring.snapshot_cache import outdate
from shared.ledger import digest_channels, digest_runs, digest_setup, notifications
from shared.ledger.digest_channels import DigestChannel
from shared.ledger.digest_runs import DigestRun

_MESSAGES = 10
#: What goes with a channel is counted up to so many: a page does not wait for millions.
_COUNTED = 10_000
ACTIONS = ("test", "enable", "disable", "remove")
_DANGEROUS = ("disable", "remove")
NO_WORKER_TOLD = "Redis does not answer: no worker can be told."
#: Word and shape of each state of a message.
MESSAGE_STATES = {
    "calling": ("in a call", "busy"),
    "frozen": ("outcome unknown", "warn"),
    "sent": ("taken", "ok"),
    "failed": ("not taken", "bad"),
}


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
    run = _found_run(view)
    return {"run": run, "is_broken_off": _is_broken_off(run)}


def _is_broken_off(run: DigestRun) -> bool:
    return run.is_broken_off(longest_call_s=services().settings.digest_timeout_ms / 1000)


def _is_open(view: View) -> bool:
    run = _found_run(view)
    return run.result is None and not _is_broken_off(run)


add_page("digests", Panel("digest_channels", "Channels", ("digests",)), tab="Overview")
add_page("digest_run", Panel("digest_run", "Result", context=_run), tab="Overview", is_busy=_is_open)


def no_worker_told(view: View) -> str:
    """Why no worker can be asked for anything just now; empty where one can."""
    return NO_WORKER_TOLD if view.snapshot.is_away("redis") else ""


@pages.app_context_processor
def _words() -> dict[str, object]:
    return {"no_worker_told": no_worker_told}


@pages.get("/digests")
@reads
def digest_page() -> str:
    """Channels and the last messages."""
    with services().reading.transaction() as connection:
        messages = notifications.messages(connection, limit=_MESSAGES)
    return page("digests", "monitoring/digests.html", messages=messages, message_states=MESSAGE_STATES)


@pages.get("/digests/channels/<name>/<action>")
@acts
def ask_channel(name: str, action: str) -> str:
    """Say what an action on a channel will do, and ask."""
    channel, lost = _channel(name, action), None
    if action == "remove":
        with services().reading.transaction() as connection:
            lost = digest_channels.losses(connection, channel.id, most=_COUNTED)
    return page(
        "digests",
        "monitoring/digest_ask.html",
        channel=channel,
        action=action,
        lost=lost,
        most=_COUNTED,
        longest_reason=LONGEST,
    )


@pages.post("/digests/channels/<name>/<action>")
@acts
def act_on_channel(name: str, action: str) -> AnyResponse:
    """Do it; audited."""
    channel = _channel(name, action)
    if action == "test":
        return _ask_worker(channel)
    reason = given_reason() or None
    if action in _DANGEROUS and not reason:
        flash("Say why: the audit keeps it.", "error")
        return redirect(request.path, code=HTTPStatus.SEE_OTHER)
    with services().ledger.transaction() as connection:
        if action == "remove":
            done = digest_setup.remove(connection, channel, operator=operator(), reason=reason)
        else:
            on = action == "enable"
            done = digest_setup.switch(connection, channel, on=on, operator=operator(), reason=reason)
    said = f"{action}d" if done else f"was {action}d already"
    flash(f"{channel.name}: {said}.")
    outdate()
    services().doorbell.ring("digests", "digest_channels")
    return redirect(url_for("monitoring.digest_page"), code=HTTPStatus.SEE_OTHER)


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
        with services().ledger.transaction() as connection:
            given_up = digest_runs.give_up(connection, run_id)
        if given_up:
            flash(f"{NO_WORKER_TOLD} Nothing was done.", "error")
            return redirect(url_for("monitoring.digest_page"), code=HTTPStatus.SEE_OTHER)
    return redirect(url_for("monitoring.digest_run_page", run_id=run_id), code=HTTPStatus.SEE_OTHER)


def _channel(name: str, action: str) -> DigestChannel:
    with services().reading.transaction() as connection:
        found = digest_channels.find(connection, name.replace("\0", "")) if action in ACTIONS else None
    if found is None:
        abort(HTTPStatus.NOT_FOUND)
    return found
