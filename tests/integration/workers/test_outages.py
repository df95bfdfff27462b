"""An outage is what the ledger saw: calls were made and nothing was taken. Waiting without calls is none."""

from datetime import datetime
from typing import Any

import pytest

from shared.domain.states import SendStatus
from shared.ledger import providers
from shared.ledger.db import Ledger
from tests.integration.workers.ches import refused, serve
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import one, put_outage, put_rows
from tests.support.scripted_http import RESET, ScriptedHttp

SENDING = SendStatus.SENDING


@pytest.mark.parametrize(
    ("status", "before"),
    [
        (503, {}),
        (503, {"took": "4 days"}),
        (503, {"since": "7 days", "until": "4 days"}),
        (429, {"since": "7 days", "until": "4 days"}),
        (403, {"since": "7 days", "until": "4 days"}),
    ],
    ids=["never called", "took the last", "down before", "throttled before", "our account before"],
)
def test_a_backlog_that_nobody_tried_for_days_is_not_given_up_for_the_first_refusals(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, status: int, before: dict[str, str]
) -> None:
    """A hold, a paused queue and a fleet that was off look the same to the ledger: nothing was called."""
    put_outage(ledger, ches.credential(), **before)
    serve(provider, otherwise=refused(status))
    send = make_send(ledger, count=60, status=SENDING, age="7 days")
    put_rows(ledger, send.id, range(1, 11), "retrying", due_in="-1 second", attempts=1)
    ches.run(send)
    ches.reconcile()
    assert "dead_lettered" not in counts(ledger, send.id)
    assert outage_since(ledger, ches) is not None


def outage_since(ledger: Ledger, worker: InProcess, *, unbroken_s: float = 7_200) -> datetime | None:
    with ledger.autocommit() as connection:
        account = {"provider": "ches", "credential": worker.credential()}
        return providers.standing(connection, **account, unbroken_s=unbroken_s).outage_since


def state(ledger: Ledger) -> dict[str, Any]:
    """Hours since each moment, to the tenth."""
    return one(
        ledger,
        "SELECT round(extract(epoch FROM now() - refused_since) / 3600, 1)::float8 AS since,"
        " round(extract(epoch FROM now() - refused_at) / 3600, 1)::float8 AS until FROM provider_state",
    )


@pytest.mark.parametrize(
    ("answer", "seen", "since"),
    [
        (refused(503), {"since": "10 hours", "until": "1 hour"}, 10.0),
        (refused(429), {"since": "10 hours", "until": "1 hour"}, 10.0),
        (refused(403), {"since": "10 hours", "until": "1 hour"}, 10.0),
        ([RESET], {"since": "10 hours", "until": "1 hour"}, 10.0),
        (refused(503), {"since": "10 hours", "until": "3 hours"}, 0.0),
        (refused(503), {"since": "10 hours", "until": "1 hour", "took": "9 hours"}, 0.0),
        (refused(503), {"took": "9 hours"}, 0.0),
    ],
    ids=["down", "throttled", "our account", "cut", "nobody asked for hours", "took something", "first refusal"],
)
def test_an_outage_goes_on_with_each_refusal_and_begins_with_the_first_after_something_was_taken(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, answer: Any, seen: dict[str, str], since: float
) -> None:
    put_outage(ledger, ches.credential(), **seen)
    serve(provider, otherwise=answer)
    ches.run(make_send(ledger, status=SENDING))
    assert state(ledger) == {"since": since, "until": 0.0}
    assert outage_since(ledger, ches) is not None


def test_an_outage_is_over_with_the_first_message_taken(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    put_outage(ledger, ches.credential(), since="10 hours")
    serve(provider)
    ches.run(make_send(ledger, status=SENDING))
    assert outage_since(ledger, ches) is None


def test_a_refusal_of_the_recipient_or_the_message_is_no_outage(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    serve(provider, otherwise=refused(422))
    ches.run(make_send(ledger, count=3, status=SENDING))
    assert outage_since(ledger, ches) is None


def test_a_call_that_was_taken_after_all_ends_the_outage_it_seemed_part_of(ledger: Ledger, ches: InProcess) -> None:
    account = {"provider": "ches", "credential": ches.credential()}
    put_outage(ledger, ches.credential(), since="10 hours")
    with ledger.autocommit() as connection:
        now = connection.execute("SELECT now() - interval '11 hours', now() - interval '1 hour'").fetchone()
        assert now is not None
        providers.note_taken(connection, **account, at=now[0])
        assert outage_since(ledger, ches) is not None  # it says nothing of the time since
        providers.note_taken(connection, **account, at=now[1])
        assert outage_since(ledger, ches) is None
        providers.note_taken(connection, **account, at=now[0])
        assert outage_since(ledger, ches) is None
