"""A sending number whose queue at Twilio is full: everything waits for it as a whole, longer and longer."""

from threading import Lock

import pytest

from shared.domain.states import Channel, SendStatus
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import make_due, scalar
from tests.support.scripted_http import Received, ScriptedHttp, Step, answer, form

PATH = "/2010-04-01/Accounts/AC0001/Messages.json"
WINDOW = 25


class Number:
    """A sending number of Twilio's with room for so many more messages."""

    def __init__(self) -> None:
        self.room = 0
        self._lock = Lock()
        self.taken: list[str] = []

    def __call__(self, request: Received) -> Step:
        with self._lock:
            if self.room == 0:
                return answer(400, {"code": 21611, "message": "This 'From' number has exceeded it", "status": 400})
            self.room -= 1
            self.taken.append(form(request)["To"])
            return answer(201, {"sid": f"SM{len(self.taken)}", "status": "queued"})


def test_a_full_queue_is_asked_rarely_and_every_message_goes_once(
    ledger: Ledger, make_worker: MakeWorker, provider: ScriptedHttp
) -> None:
    number = Number()
    provider.always(PATH, number)
    worker = make_worker(
        sms_provider="twilio",
        twilio_base_url=provider.url,
        twilio_account_sid="AC0001",
        twilio_auth_token="t0ken",
        twilio_from="+16045550100",
        window_max=WINDOW,
    )
    send = make_send(ledger, count=300, channel=Channel.SMS, status=SendStatus.SENDING)
    waits = []
    while counts(ledger, send.id) != {"sent": 300}:
        number.room = 0 if len(waits) < 4 else 110
        worker.run(send)
        asked = len(provider.posts(PATH))
        worker.run(send)  # while the gate is closed nobody asks, whatever is due
        assert len(provider.posts(PATH)) == asked
        waits.append(worker.pass_gate(Channel.SMS))
        make_due(ledger)
        assert len(waits) < 10
    assert waits[:6] == pytest.approx([30, 60, 120, 240, 480, 960], abs=14)
    assert len(number.taken) == len(set(number.taken)) == 300
    refused = len(provider.posts(PATH)) - 300
    assert refused <= 6 * WINDOW
    assert scalar(ledger, "SELECT count(*) FROM attempt WHERE outcome = 'throttled'") == refused
    assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 300
