"""Providers that answer oddly, or at an odd moment."""

import json
from threading import Event, Thread

import pytest

from shared.domain.states import Lane, SendStatus
from shared.ledger.db import Ledger
from tests.integration.workers.ches import calls, refused, serve, taken
from tests.integration.workers.conftest import MakeWorker, ches_settings
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import counts, make_send, send_status
from tests.support.ledger_rows import delivery, put_outage, put_rows, scalar
from tests.support.scripted_http import RESET, Received, ScriptedHttp, Step, answer
from tests.support.waiting import wait_until

SENDING = SendStatus.SENDING


@pytest.mark.parametrize("ref", ["msg-\0-1", "msg-\ud800-1", "m" * 60_000], ids=["nul", "lone surrogate", "endless"])
def test_a_message_is_sent_whatever_its_providers_id_is_made_of(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, ref: str
) -> None:
    serve(provider, otherwise=answer(201, json.dumps({"messages": [{"msgId": ref}]}).encode()))
    send = make_send(ledger, status=SENDING)
    ches.run(send)
    assert counts(ledger, send.id) == {"sent": 1}
    assert send_status(ledger, send.id) == "completed"
    kept = delivery(ledger, send.id)["provider_ref"]
    assert kept[0] == "m"
    assert len(kept) <= 255


@pytest.mark.parametrize("refusal", [refused(429), refused(403)], ids=["throttled", "our account"])
def test_a_delivery_first_tried_days_after_its_acceptance_has_not_waited_for_the_provider_yet(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, refusal: object
) -> None:
    serve(provider, otherwise=refusal)  # type: ignore[arg-type]
    send = make_send(ledger, status=SENDING, age="5 days")
    ches.run(send)
    assert counts(ledger, send.id) == {"owed": 1}


@pytest.mark.parametrize(
    ("seen", "becomes"),
    [
        ({"since": "73 hours"}, "dead_lettered"),
        ({"since": "71 hours"}, "owed"),
        ({"since": "73 hours", "took": "1 hour"}, "owed"),
        ({"since": "73 hours", "until": "4 hours"}, "owed"),
        ({"took": "73 hours"}, "owed"),
    ],
    ids=["refused ever since", "younger", "took something", "nobody asked for hours", "not refused before"],
)
def test_a_retried_delivery_is_given_up_once_the_provider_has_refused_everything_for_the_longest_wait(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp, seen: dict[str, str], becomes: str
) -> None:
    serve(provider, otherwise=refused(429))
    send = make_send(ledger, status=SENDING, age="5 days")
    put_rows(ledger, send.id, [1], "retrying", due_in="-1 second")
    put_outage(ledger, ches.credential(), **seen)
    ches.run(send)
    assert counts(ledger, send.id) == {becomes: 1}


def test_a_provider_that_drops_every_call_is_left_alone_after_five(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    serve(provider, otherwise=[RESET])
    send = make_send(ledger, count=60, status=SENDING)
    ches.run(send)
    # One window was in flight; the circuit kept the others from it.
    assert counts(ledger, send.id) == {"unsure": 25, "owed": 35}
    assert sum(calls(provider).values()) == 25
    assert scalar(ledger, "SELECT count(*) FROM attempt WHERE outcome = 'ambiguous'") == 25


def test_a_provider_that_says_when_it_will_be_back_is_not_asked_before(
    ledger: Ledger, ches: InProcess, provider: ScriptedHttp
) -> None:
    serve(provider, otherwise=refused(503, **{"retry-after": "1800"}))
    send = make_send(ledger, status=SENDING)
    ches.run(send)
    waits_s = scalar(ledger, "SELECT extract(epoch FROM next_attempt_at - now())::float8 FROM delivery")
    assert waits_s == pytest.approx(1_890, abs=95)


def test_a_call_that_hangs_holds_one_slot_of_the_cap_and_nobody_else(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    let_go = Event()

    def hangs(request: Received) -> Step:
        let_go.wait(15)
        return taken(request)

    two = {**ches_settings(provider), "ches_max_concurrent_requests": 2}
    first, second = make_worker(**two), make_worker(**two)
    serve(provider, {"hangs": hangs})
    hanging = make_send(ledger, addresses=["hangs@example.com", "b@example.com"], lane=Lane.SINGLE, status=SENDING)
    put_rows(ledger, hanging.id, [2], "sent")
    others = make_send(ledger, count=10, lane=Lane.SINGLE, status=SENDING)
    working = Thread(target=first.run, args=[hanging])
    working.start()
    wait_until(lambda: calls(provider)["hangs@example.com"])
    second.run(others)
    assert [counts(ledger, send.id) for send in (hanging, others)] == [{"sending": 1, "sent": 1}, {"sent": 10}]
    let_go.set()
    working.join()
    assert counts(ledger, hanging.id) == {"sent": 2}
