"""Which provider takes a message, and what stands before it: one adapter per thread, one set of guards per process."""

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import pybreaker

from shared.accounts import cap_of, missing_settings, provider_name
from shared.coordination.doorbell import Doorbell
from shared.coordination.guard import Guards
from shared.coordination.heartbeat import alive, list_workers
from shared.coordination.slots import reserved_slots
from shared.domain.ids import IdError, parse_delivery_id
from shared.domain.retry import RetryPolicy
from shared.domain.states import Channel, Lane, Mode
from shared.jobs import queue_for
from shared.ledger import sandbox
from shared.ledger.db import POSTGRES_AWAY
from shared.recovery.waits import circuit_policy, retry_policy
from shared.settings import Settings
from workers.middleware.runtime import Runtime
from workers.providers.protocol import EmailMessage, Message, Provider
from workers.providers.registry import build_provider
from workers.providers.sandbox import Kept, StoreAway

_log = logging.getLogger(__name__)
#: Processes of the Procfile that make calls.
_SENDING = ("worker_send", "worker_bulk")

_process_lock = threading.Lock()
_of_process: "dict[Runtime, Senders]" = {}


@dataclass(frozen=True, slots=True)
class Sender:
    """An adapter of this thread, its guards, and the retry policy of its channel."""

    provider: Provider
    guards: Guards
    policy: RetryPolicy


def name_unconfigured(settings: Settings) -> None:
    """Say at start-up which channel has no working provider, and which settings it lacks; its sends will wait."""
    for channel in Channel:
        name = provider_name(settings, channel, Mode.LIVE)
        missing = missing_settings(name, settings)
        if missing:
            _log.warning(
                "provider_not_configured", extra={"channel": channel.value, "provider": name, "missing": list(missing)}
            )


class _RingsTheBell(pybreaker.CircuitBreakerListener):
    """The pages hear of a circuit's change from the process that notices it."""

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell

    def state_change(self, cb: object, old_state: object, new_state: object) -> None:  # noqa: ARG002
        """Ring for what shows circuits."""
        self._doorbell.ring("providers", "channels")


def sending_processes(settings: Settings) -> int:
    """How many processes of the configured fleet make calls, at least this one."""
    counts = dict(entry.split("=") for entry in settings.fleet.split())
    return max(1, sum(int(counts.get(name, 0)) for name in _SENDING))


def senders_of(runtime: Runtime) -> "Senders":
    """The senders of this process, the same for all its actors."""
    with _process_lock:
        if runtime not in _of_process:
            _of_process[runtime] = Senders(runtime)
        return _of_process[runtime]


class Senders:
    """The senders of one process; actors share them (`senders_of`)."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._local = threading.local()
        self._lock = threading.Lock()
        self._guards: dict[tuple[str, str], Guards] = {}
        self._made: list[tuple[threading.Thread, Provider]] = []
        runtime.each_beat.append(self._tell_and_ask)
        runtime.at_end.append(self._close)

    def sender(self, channel: Channel, mode: Mode) -> Sender:
        """The sender of this thread for a channel and a mode."""
        return self.named(provider_name(self._runtime.settings, channel, mode), channel)

    def named(self, name: str, channel: Channel) -> Sender:
        """The sender of this thread for a provider, whether it is the one in use or was before."""
        made: dict[str, Provider] = self._local.__dict__.setdefault("providers", {})
        if name not in made:
            made[name] = build_provider(name, self._runtime.settings, keep=self._keep, find=self._find)
            with self._lock:
                self._made.append((threading.current_thread(), made[name]))
        provider = made[name]
        return Sender(provider, self.guards_of(provider), retry_policy(self._runtime.settings, channel))

    def guards_of(self, provider: Provider) -> Guards:
        """The guards of a provider and credential, shared by the threads of this process."""
        key = (provider.name, provider.credential)
        with self._lock:
            if key not in self._guards:
                self._guards[key] = self._make_guards(*key)
            return self._guards[key]

    def _tell_and_ask(self) -> None:
        """Tell of waits for slots; note how many processes share the caps, for when Redis cannot be asked."""
        with self._lock:
            guards = list(self._guards.values())
        if guards:
            queues = {queue_for(channel, lane).value for channel in Channel for lane in Lane}
            workers = list_workers(self._runtime.link, namespace=self._runtime.settings.redis_namespace)
            count = max(alive(workers, queues=queues), sending_processes(self._runtime.settings))
            for each in guards:
                each.known_workers(count)
                each.waits.flush()

    def _close(self) -> None:
        """Close guards, and the adapters of the threads that have ended; a thread still in a call keeps its own."""
        with _process_lock:
            _of_process.pop(self._runtime, None)
        for guards in self._guards.values():
            guards.close()
        with self._lock:
            ended = [provider for thread, provider in self._made if not thread.is_alive()]
            self._made = [made for made in self._made if made[0].is_alive()]
        for provider in ended:
            try:
                provider.close()
            except Exception:  # noqa: BLE001  # the end of a process: the next one must be closed all the same
                _log.exception("adapter_not_closed", extra={"provider": provider.name})

    def _make_guards(self, name: str, credential: str) -> Guards:
        settings = self._runtime.settings
        cap = cap_of(settings, name)
        guards = Guards(
            self._runtime.link,
            provider=name,
            credential=credential,
            cap=cap or None,
            reserved=reserved_slots(cap, settings.single_lane_reserved_percent),
            policy=circuit_policy(settings),
            namespace=settings.redis_namespace,
            listeners=(_RingsTheBell(self._runtime.doorbell),),
        )
        # Until the beats are counted: a process that starts while Redis is away must not take the whole cap.
        guards.known_workers(sending_processes(settings))
        return guards

    def _keep(self, messages: Sequence[Message]) -> None:
        try:
            with self._runtime.ledger.transaction() as connection:
                sandbox.keep(connection, [_kept(message) for message in messages])
        except POSTGRES_AWAY as error:
            raise StoreAway from error

    def _find(self, keys: Sequence[UUID]) -> Kept:
        try:
            with self._runtime.ledger.autocommit() as connection:
                found, since = sandbox.find(connection, keys)
        except POSTGRES_AWAY as error:
            raise StoreAway from error
        return Kept(frozenset(found), since)


def _kept(message: Message) -> sandbox.SandboxMessage:
    letter = message if isinstance(message, EmailMessage) else None
    send_id, row_no = _delivery_of(message)
    return sandbox.SandboxMessage(
        key=message.key,
        channel="email" if letter else "sms",
        address=message.to,
        sender=message.sender,
        reply_to=letter.reply_to if letter else None,
        subject=letter.subject if letter else None,
        text=message.text,
        html=letter.html if letter else None,
        send_id=send_id,
        row_no=row_no,
    )


def _delivery_of(message: Message) -> tuple[UUID, int] | tuple[None, None]:
    try:
        return parse_delivery_id(message.delivery_id)
    except IdError:
        return None, None  # of no send: a digest
