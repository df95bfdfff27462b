"""A sending number whose queue at Twilio is full: everything waits for it as a whole, longer and longer."""

from threading import Lock

from shared.coordination import keys
from shared.domain.states import Channel, Mode, SendStatus
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import counts, make_send
from tests.support.ledger_rows import make_due, scalar
from tests.support.scripted_http import Received, ScriptedHttp, Step, answer, form
from workers.actors.senders import Senders
from workers.providers.protocol import Provider

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


def gate_opens(worker: InProcess, ledger: Ledger) -> float:
    """Let the gate's time pass; how long it would have been closed, in seconds."""
    provider: Provider = Senders(worker.runtime).sender(Channel.SMS, Mode.LIVE).provider
    part = keys.provider_part(provider.name, provider.credential)
    gate, growth = (key.name(worker.settings.redis_namespace, provider=part) for key in (keys.GATE, keys.GATE_GROWTH))
    link = worker.runtime.link
    closed_ms, last_ms = (int(answered or 0) for answered in link.pipeline([("PTTL", gate), ("GET", growth)]))
    link.pipeline([("DEL", gate), ("PEXPIRE", growth, last_ms)])
    make_due(ledger)
    return closed_ms / 1000


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
        waits.append(round(gate_opens(worker, ledger)))
        assert len(waits) < 10
    assert waits[:6] == [30, 60, 120, 240, 480, 960]
    assert len(number.taken) == len(set(number.taken)) == 300
    refused = len(provider.posts(PATH)) - 300
    assert refused <= 6 * WINDOW
    assert scalar(ledger, "SELECT count(*) FROM attempt WHERE outcome = 'throttled'") == refused
    assert scalar(ledger, "SELECT sum(attempt_count)::int FROM delivery") == 300
