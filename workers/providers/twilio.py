"""
SMS through Twilio's Messages resource: one form POST per recipient.

Twilio knows neither an idempotency key nor a reference of ours. Where the outside can reach us, the URL of
the status callback carries the delivery's id and the message's key, so that a callback resolves a lost answer.
Where none comes in ten minutes, Twilio's own list is looked through; absence from it proves nothing.

Source: Twilio's API description of 2010-04-01 and its error dictionary (twilio.com/docs/api/errors/<code>).
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from urllib.parse import urlencode

from shared.domain import resolutions
from shared.domain.outcome import Accepted, Configuration, Outcome, Permanent, Scope, Suppressed, Throttled, Transient
from shared.domain.proof import Proof
from workers.providers import classify, twilio_list
from workers.providers.http import HttpLimits, HttpRequest, HttpResult
from workers.providers.http_engine import HttpEngine
from workers.providers.protocol import PROVE_S, Message, SmsMessage

#: seconds to wait when the account's daily cap is reached; it may be raised or a day may end meanwhile.
_DAILY_CAP_WAIT_S = 3_600.0


class Meaning(Enum):
    """What a Twilio error code says about the message it answers."""

    WRONG_ACCOUNT = auto()
    WRONG_SENDER = auto()
    BAD_RECIPIENT = auto()
    #: a geographic permission or a trial account's limit: the account's doing, but only for this recipient.
    ACCOUNT_RESTRICTION = auto()
    BAD_MESSAGE = auto()
    OPTED_OUT = auto()
    TOO_FAST = auto()
    SENDER_QUEUE_FULL = auto()
    DAILY_CAP = auto()
    UNAVAILABLE = auto()
    #: "may have been processed; a repeat may send twice", says its page.
    INTERNAL_ERROR = auto()


#: Twilio may change its codes, so they are data; a code that is not listed falls back to the HTTP status.
MEANINGS: dict[int, Meaning] = {
    **dict.fromkeys((20003, 20005, 20006, 20008, 20404, 30002), Meaning.WRONG_ACCOUNT),
    **dict.fromkeys((21212, 21603, 21606, 21703, 21704, 21705, 21709, 21712), Meaning.WRONG_SENDER),
    **dict.fromkeys((21211, 21214, 21217, 21401, 21421, 21612, 21614, 21635), Meaning.BAD_RECIPIENT),
    **dict.fromkeys((21408, 21608), Meaning.ACCOUNT_RESTRICTION),
    **dict.fromkeys((21602, 21617, 21618, 21620, 21623, *range(21654, 21659)), Meaning.BAD_MESSAGE),
    21610: Meaning.OPTED_OUT,
    20429: Meaning.TOO_FAST,
    21611: Meaning.SENDER_QUEUE_FULL,
    63038: Meaning.DAILY_CAP,
    20503: Meaning.UNAVAILABLE,
    20500: Meaning.INTERNAL_ERROR,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TwilioConfig:
    """
    One account. Either `sender` or `messaging_service_sid` is set; a message's own sender stands over both.

    `status_callback_url` is where Twilio reports deliveries, None where the outside cannot reach us.
    """

    account_sid: str
    auth_token: str = field(repr=False)
    sender: str | None = None
    messaging_service_sid: str | None = None
    status_callback_url: str | None = None
    base_url: str = "https://api.twilio.com"
    timeout_ms: int = 15_000
    connect_timeout_ms: int = 3_000


class TwilioProvider:
    """The adapter; one instance per worker thread."""

    name = "twilio"
    resolution = resolutions.TWILIO

    def __init__(self, config: TwilioConfig) -> None:
        self._config = config
        self._url = f"{config.base_url.rstrip('/')}/2010-04-01/Accounts/{config.account_sid}/Messages.json"
        pair = b64encode(f"{config.account_sid}:{config.auth_token}".encode()).decode()
        self._headers = [f"Authorization: Basic {pair}", "Content-Type: application/x-www-form-urlencoded"]
        self._engine = HttpEngine(
            HttpLimits(total_timeout_ms=config.timeout_ms, connect_timeout_ms=config.connect_timeout_ms)
        )
        account = f"{config.base_url} {config.account_sid}"
        self.credential = hashlib.sha256(account.encode()).hexdigest()[:12]

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """Post each message once."""
        for index, message in enumerate(messages):
            self._engine.start(index, HttpRequest(self._url, self._headers, _form(message, self._config)))
        for ended in self._engine.results():
            yield None if ended is None else (ended[0], outcome_of(ended[1]))

    def cut(self) -> None:
        """See `Provider.cut`."""
        self._engine.stop()

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        """Look for each message in Twilio's list."""
        for index, message in enumerate(messages):
            url = f"{self._url}?{twilio_list.query_of(message)}"
            self._engine.start(index, HttpRequest(url, self._headers, None, "GET", int(PROVE_S * 1_000)))
        for ended in self._engine.results():
            if ended is None:
                yield None
                continue
            message = messages[ended[0]]
            if not isinstance(message, SmsMessage):
                raise TypeError("Twilio sends SMS only")
            yield (
                ended[0],
                twilio_list.read_list(
                    ended[1],
                    message,
                    senders=_senders(message, self._config),
                    timeout_s=self._config.timeout_ms / 1_000,
                ),
            )

    def close(self) -> None:
        """Close kept connections."""
        self._engine.close()


def outcome_of(result: HttpResult) -> Outcome:
    """Classify Twilio's answer to the creation of a message."""
    if result.status == 0:
        return classify.transport_failure(result)
    answer = result.json()
    if result.is_success:
        sid = answer.get("sid")
        return Accepted(sid if isinstance(sid, str) else None)
    number = answer.get("code")
    detail = classify.first_detail(answer.get("message"), answer.get("detail"))
    if isinstance(number, int) and number in MEANINGS:
        return _outcome_of_code(number, detail, result)
    code = f"twilio_{number}" if isinstance(number, int) else f"twilio_{result.status}"
    if result.status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
        return Configuration(Scope.PROVIDER, code, detail)  # the account's path is wrong, not the message
    return classify.status_default(result, code=code, detail=detail)


def _outcome_of_code(number: int, detail: str, result: HttpResult) -> Outcome:
    code = f"twilio_{number}"
    wait_s = classify.retry_after_s(result)
    match MEANINGS[number]:
        case Meaning.WRONG_ACCOUNT:
            return Configuration(Scope.PROVIDER, code, detail)
        case Meaning.WRONG_SENDER:
            return Configuration(Scope.SENDER, code, detail)
        case Meaning.BAD_RECIPIENT:
            return Permanent(Scope.RECIPIENT, code, detail)
        case Meaning.ACCOUNT_RESTRICTION:
            return Permanent(Scope.RECIPIENT, f"{code}_account_restriction", detail)
        case Meaning.BAD_MESSAGE:
            return Permanent(Scope.MESSAGE, code, detail)
        case Meaning.OPTED_OUT:
            return Suppressed(code, detail)
        case Meaning.TOO_FAST:
            return Throttled(code, detail, wait_s)
        case Meaning.SENDER_QUEUE_FULL:
            return Throttled(code, detail, wait_s, Scope.SENDER)
        case Meaning.DAILY_CAP:
            return Throttled(code, detail, _DAILY_CAP_WAIT_S if wait_s is None else wait_s)
        case Meaning.UNAVAILABLE:
            return Transient(Scope.PROVIDER, code, detail)
        case Meaning.INTERNAL_ERROR:
            return classify.ambiguous(result, code=code, detail=detail)


def _form(message: Message, config: TwilioConfig) -> bytes:
    if not isinstance(message, SmsMessage):
        raise TypeError("Twilio sends SMS only")
    fields = {"To": message.to, "Body": message.text}
    if message.sender is None and config.messaging_service_sid:
        fields["MessagingServiceSid"] = config.messaging_service_sid
    else:
        fields["From"] = message.sender or config.sender or ""
    if config.status_callback_url:
        ours = urlencode({"delivery": message.delivery_id, "key": message.key})
        fields["StatusCallback"] = f"{config.status_callback_url}?{ours}"
    return urlencode(fields).encode("ascii")


def _senders(message: SmsMessage, config: TwilioConfig) -> list[str]:
    if message.sender is None and config.messaging_service_sid:
        return [config.messaging_service_sid]
    return [sender for sender in (message.sender or config.sender,) if sender]
