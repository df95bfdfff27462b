"""What holds a channel back at this moment: its provider's gate, circuit or cap, or a person's hold."""

from dataclasses import dataclass, field

import pybreaker

from shared.accounts import accounts_in_use, cap_of, credential_of, provider_name
from shared.coordination.circuit import Circuit
from shared.coordination.circuit_snapshot import CircuitPolicy
from shared.coordination.gate import Gate
from shared.coordination.redis import RedisLink, RedisUnavailable
from shared.coordination.slots import Slots
from shared.domain.books import Reason
from shared.domain.retry import RetryPolicy
from shared.domain.states import Channel, Mode
from shared.settings import Settings


def circuit_policy(settings: Settings) -> CircuitPolicy:
    """The circuit's policy of this configuration."""
    return CircuitPolicy(
        failures=settings.circuit_failures,
        window_s=settings.circuit_window_ms / 1000,
        open_s=settings.circuit_reset_ms / 1000,
        recheck_s=settings.configuration_recheck_ms / 1000,
    )


def retry_policy(settings: Settings, channel: Channel) -> RetryPolicy:
    """The policy of a channel: its own settings where there are any, else the common ones."""
    email = channel is Channel.EMAIL
    base_ms = settings.email_retry_base_delay_ms if email else settings.sms_retry_base_delay_ms
    attempts = settings.email_max_delivery_attempts if email else settings.sms_max_delivery_attempts
    return RetryPolicy(
        base_delay_s=(base_ms or settings.retry_base_delay_ms) / 1000,
        max_attempts=attempts or settings.max_delivery_attempts,
        jitter_share=settings.retry_jitter_percent / 100,
        max_outage_wait_s=settings.max_outage_wait_hours * 3600,
        retry_after_min_s=settings.retry_after_min_ms / 1000,
        retry_after_max_s=settings.retry_after_max_ms / 1000,
        retry_after_default_s=settings.retry_after_default_ms / 1000,
        recheck_s=settings.configuration_recheck_ms / 1000,
    )


def look_again(link: RedisLink, settings: Settings) -> None:
    """
    Let the next call try each isolated account that these settings use: they may be other settings than before.

    Holds of people and circuits that failures opened stay. Raises RedisUnavailable.
    """
    for account in accounts_in_use(settings):
        circuit_of(link, settings, *account).look_again()


def circuit_of(link: RedisLink, settings: Settings, name: str, credential: str) -> Circuit:
    """The circuit of a provider and account under these settings."""
    space, policy = settings.redis_namespace, circuit_policy(settings)
    return Circuit(link, provider=name, credential=credential, policy=policy, namespace=space)


@dataclass(frozen=True, slots=True)
class _Found:
    """What keeps a call from starting now, and what people are told."""

    now: Reason | None
    shown: Reason | None


@dataclass
class Waits:
    """
    One look at the providers, each asked once: make another for another look.

    Without Redis nobody is held back: each process has its share of the cap.
    """

    link: RedisLink
    settings: Settings
    _known: dict[tuple[str, str], _Found] = field(default_factory=dict)

    def reason(self, channel: Channel, mode: Mode) -> Reason | None:
        """Why no call of this channel may start now; None where one may, or where Redis is away."""
        return self._found(channel, mode).now

    def shown(self, channel: Channel, mode: Mode) -> Reason | None:
        """
        What people are told keeps this channel back; None as above.

        Unlike `reason`, a circuit that is tried, or may be, still keeps it back: that one call is not the others.
        """
        return self._found(channel, mode).shown

    def held_back(self, channel: Channel, mode: Mode) -> bool:
        """Whether a chain would be turned away at the door; a full cap turns nobody away for long."""
        return self.reason(channel, mode) not in (None, "cap")

    def _found(self, channel: Channel, mode: Mode) -> _Found:
        name = provider_name(self.settings, channel, mode)
        account = (name, credential_of(self.settings, name))
        if account not in self._known:
            try:
                self._known[account] = self._ask(*account)
            except RedisUnavailable:
                self._known[account] = _Found(None, None)
        return self._known[account]

    def _ask(self, name: str, credential: str) -> _Found:
        space = self.settings.redis_namespace
        if Gate(self.link, provider=name, credential=credential, namespace=space).closed_for_s() > 0:
            return _Found("gate", "gate")
        circuit = circuit_of(self.link, self.settings, name, credential).snapshot()
        if circuit.hold is not None:
            return _Found("hold", "hold")
        shut: Reason | None = None
        if circuit.state != pybreaker.STATE_CLOSED:
            shut = "circuit" if circuit.isolation is None else "isolated"
        if circuit.next_probe_in_s is not None and circuit.next_probe_in_s > 0:
            return _Found(shut, shut)
        cap = cap_of(self.settings, name)
        slots = Slots(self.link, provider=name, credential=credential, cap=cap, namespace=space)
        if cap and slots.in_flight().all >= cap:
            return _Found("cap", shut or "cap")
        return _Found(None, shut)
