"""`/admin/monitoring/system`: the machinery, from the stores to the workers; holding a provider, pausing a queue."""

from collections.abc import Mapping

from flask import abort, flash, redirect, request
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring import fleet_sections, ledger_sections
from admin.monitoring.access import acts, operator, reads
from admin.monitoring.frame import page, pages, view_of
from admin.monitoring.panels import Panel, View, add_page
from admin.monitoring.reason import given_reason
from admin.monitoring.snapshot_cache import outdate
from admin.monitoring.system_rows import (
    foundations,
    provider_rows,
    queue_rows,
    recovery_rows,
    threshold_rows,
    waiting_for_provider,
    waiting_on_queue,
    worker_rows,
)
from shared.accounts import accounts_in_use, provider_name
from shared.domain.states import Channel, Mode
from shared.jobs import PAUSABLE
from shared.ledger import pauses, providers
from shared.recovery.holds import Holds

#: Whose import makes the sections that this page shows.
SECTION_MODULES = (fleet_sections, ledger_sections)


def _thresholds(view: View) -> Mapping[str, object]:
    return {
        "thresholds": threshold_rows(services().settings),
        "postgres": view.data("postgres"),
        "web_version": view.data("workers").get("web_version"),
    }


def _memory(_: View) -> Mapping[str, object]:
    return {"high_percent": services().settings.monitoring_redis_memory_percent}


add_page(
    "system",
    Panel("foundations", "Foundations", context=foundations),
    Panel("providers", "Providers", ("providers",), context=provider_rows),
    Panel("queues", "Queues", ("queues",), context=queue_rows),
    Panel("workers", "Workers", ("workers",), context=worker_rows),
    Panel("recovery", "Delivery recovery", ("recovery",), context=recovery_rows),
    Panel("redis", "Redis", ("redis",), context=_memory),
    Panel("installation", "Installation", context=_thresholds),
)


@pages.get("/system")
@reads
def system() -> str:
    """The page."""
    return page("system", "monitoring/system.html")


@pages.get("/system/providers/<account>/<action>")
@acts
def ask_provider(account: str, action: str) -> str:
    """Say what holding or releasing a provider will do, and ask why."""
    provider, credential = _account(account, action)
    with services().reading.transaction() as connection:
        held = {(hold.provider, hold.credential): hold for hold in providers.holds(connection)}
    row = {"provider": provider, "hold": held.get((provider, credential))}
    waiting = waiting_for_provider(view_of("system"), provider, credential)
    channels = [channel for channel in Channel if provider_name(services().settings, channel, Mode.LIVE) == provider]
    return page(
        "system",
        "monitoring/stop.html",
        kind="provider",
        action=action,
        row=row,
        waiting=waiting,
        channels=channels,
    )


@pages.post("/system/providers/<account>/<action>")
@acts
def change_provider(account: str, action: str) -> AnyResponse:
    """Hold a provider, or release it; audited."""
    provider, credential = _account(account, action)
    reason = given_reason()
    if action == "hold" and not reason:
        flash("Say why: everybody who looks at the provider will read it.", "error")
        return redirect(request.path)
    known = services()
    holds = Holds(known.ledger.transaction, known.link, known.settings)
    if action == "hold":
        change = holds.hold(provider, credential, operator=operator(), reason=reason)
    else:
        change = holds.release(provider, credential, operator=operator(), reason=reason or None)
    late = "" if change.told else " Redis does not answer; it is told as soon as it does."
    flash(f"{provider}: {change.result}.{late}")
    _changed("providers")
    return redirect("/admin/monitoring/system#providers")


@pages.get("/system/queues/<queue>/<action>")
@acts
def ask_queue(queue: str, action: str) -> str:
    """Say what pausing or resuming a queue will do, and ask why."""
    _check_queue(queue, action)
    waiting = waiting_on_queue(view_of("system"), queue)
    return page("system", "monitoring/stop.html", kind="queue", action=action, row={"queue": queue}, waiting=waiting)


@pages.post("/system/queues/<queue>/<action>")
@acts
def change_queue(queue: str, action: str) -> AnyResponse:
    """Pause a queue, or resume it; audited."""
    _check_queue(queue, action)
    reason = given_reason()
    if action == "pause" and not reason:
        flash("Say why: everybody who looks at the queue will read it.", "error")
        return redirect(request.path)
    known = services()
    with known.ledger.transaction() as connection:
        if action == "pause":
            done = pauses.pause(connection, queue, operator=operator(), reason=reason)
            said = "paused; workers stop within seconds" if done else "was paused already"
        else:
            done = pauses.resume(connection, queue, operator=operator(), reason=reason or None)
            said = "resumed" if done else "was not paused"
    flash(f"Queue {queue}: {said}.")
    _changed("queues")
    return redirect("/admin/monitoring/system#queues")


def _changed(panel: str) -> None:
    """Who changed something sees it on the next page, others hear of it."""
    outdate()
    services().doorbell.ring(panel, "channels")


def _account(account: str, action: str) -> tuple[str, str]:
    """The provider and credential of an address; 404 for one that these settings do not use and nobody holds."""
    provider, _, credential = account.partition(":")
    known = set(accounts_in_use(services().settings))
    with services().reading.transaction() as connection:
        known |= {(hold.provider, hold.credential) for hold in providers.holds(connection)}
    if (provider, credential) not in known or action not in {"hold", "release"}:
        abort(404)
    return provider, credential


def _check_queue(queue: str, action: str) -> None:
    if queue not in PAUSABLE or action not in {"pause", "resume"}:
        abort(404)
