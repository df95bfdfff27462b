"""
Every Redis key: name, type, time to live, who writes it, who reads it.

No key is spelled anywhere else (a test looks). `python -m shared.coordination.keys` prints the table kept in
docs/redis-keys.md. Ours start with a namespace of their own, apart from the broker's. Braces are cluster hash
tags: the keys that one script touches live together.
"""

import sys
from dataclasses import dataclass

#: Prefix of our keys; the broker has its own.
NAMESPACE = "tidings"
#: Prefix of the broker's keys, as `shared.jobs.make_broker` sets it.
BROKER_NAMESPACE = f"{NAMESPACE}:broker"


@dataclass(frozen=True, slots=True)
class Key:
    """A key template; `<word>` stands for a part filled in by `name`."""

    template: str
    type: str
    ttl: str
    writer: str
    reader: str
    meaning: str

    def name(self, namespace: str, **parts: str) -> str:
        """The key's name for these parts."""
        name = self.template.replace("<ns>", namespace)
        for part, value in parts.items():
            name = name.replace(f"<{part}>", value)
        if "<" in name:
            raise KeyError(f"{self.template} lacks a part")
        return name


CIRCUIT = Key(
    template="<ns>:{<provider>}:circuit",
    type="hash: state, open_since, opened_at, epoch, reopened, probe_token, probe_until, isolated_*, held_*",
    ttl="7 days since its last change; none while an operator holds it",
    writer="send workers (circuit, guard), admin (hold, release)",
    reader="send workers, admin",
    meaning="the provider's circuit; absent = closed",
)
CIRCUIT_FAILURES = Key(
    template="<ns>:{<provider>}:circuit:failures",
    type="list: times in ms, at most as many as open the circuit",
    ttl="the window, 10 s",
    writer="send workers (circuit, guard)",
    reader="the same scripts, admin",
    meaning="latest failures that count against the circuit",
)
GATE = Key(
    template="<ns>:{<provider>}:gate",
    type="string: 1",
    ttl="until the gate opens, 1 s to 1 h",
    writer="send workers (gate)",
    reader="send workers, admin",
    meaning="the provider told us to wait (Retry-After)",
)
GATE_GROWTH = Key(
    template="<ns>:{<provider>}:gate:growth",
    type="string: ms the gate was last closed for",
    ttl="twice that",
    writer="send workers (gate)",
    reader="the same script",
    meaning="the sender's queue at the provider is full: refused again soon, the gate closes for twice as long",
)
SLOT_LEASES = Key(
    template="<ns>:{<provider>}:slots",
    type="sorted set: window token, expiry in ms",
    ttl="one lease after the last change",
    writer="send workers (slots, guard)",
    reader="send workers, admin",
    meaning="windows with calls in flight; a lease not renewed is over",
)
SLOT_COUNTS = Key(
    template="<ns>:{<provider>}:slots:counts",
    type="hash: window token, calls in flight",
    ttl="one lease after the last change",
    writer="send workers (slots, guard)",
    reader="send workers, admin",
    meaning="how many slots each lease holds",
)
SLOT_WAITS = Key(
    template="<ns>:{<provider>}:slots:waits:<minute>",
    type="hash: bucket of shared.domain.pace, number of windows",
    ttl="10 min since its last change",
    writer="send workers (slot_waits), every 5 s",
    reader="admin",
    meaning="how long windows waited for a slot in a minute",
)
LOCK = Key(
    template="<ns>:{<lock>}:lock",
    type="string: holder's token",
    ttl="the lease, renewed by a third",
    writer="single_flight",
    reader="single_flight",
    meaning="one holder in the fleet",
)
FENCE = Key(
    template="<ns>:{<lock>}:fence",
    type="string: number that only grows",
    ttl="7 days since the last holder",
    writer="single_flight",
    reader="single_flight",
    meaning="fencing token of the latest holder",
)
WORKER = Key(
    template="<ns>:worker:<worker>",
    type="string: JSON",
    ttl="15 min since the last beat; deleted on a clean exit",
    writer="heartbeat, every 5 s",
    reader="admin, guards (number of workers)",
    meaning="what one process says of itself",
)
WORKERS = Key(
    template="<ns>:workers",
    type="sorted set: worker id, time of its last beat in ms",
    ttl="15 min since the last beat of any",
    writer="heartbeat, every 5 s",
    reader="admin, guards (number of workers)",
    meaning="whose heartbeats to read",
)
QUEUES = Key(
    template="<ns>:queues",
    type="sorted set: queue, time in ms of the last beat of a worker that consumes it",
    ttl="1 week since then",
    writer="heartbeat, every 5 s",
    reader="admin",
    meaning="every queue of this installation, and since when nobody consumes it",
)
DOORBELL_CHANNEL = Key(
    template="<ns>:doorbell",
    type="pub/sub channel: panel names separated by spaces",
    ttl="none (nothing is stored)",
    writer="doorbell",
    reader="web processes",
    meaning="these panels changed",
)
DOORBELL_CHANGED = Key(
    template="<ns>:{doorbell}:changed",
    type="set: panel names",
    ttl="1 h",
    writer="doorbell",
    reader="doorbell",
    meaning="panels changed since the last ring",
)
DOORBELL_QUIET = Key(
    template="<ns>:{doorbell}:quiet",
    type="string: 1",
    ttl="2 s",
    writer="doorbell",
    reader="doorbell",
    meaning="the fleet rang a moment ago",
)
SNAPSHOT = Key(
    template="<ns>:{snapshot}:<shape>:document",
    type="string: JSON",
    ttl="10 min",
    writer="web processes (snapshot)",
    reader="web processes (snapshot)",
    meaning="what the pages show, for the whole fleet; `<shape>` names the code that wrote it, which alone reads it",
)
SNAPSHOT_BUILD = Key(
    template="<ns>:{snapshot}:<shape>:build",
    type="string: builder's token, or done",
    ttl="8 s while it is built; then to the end of the 2 s for which it is fresh",
    writer="web processes (snapshot)",
    reader="web processes (snapshot)",
    meaning="one process builds for all, at most every 2 s",
)
SNAPSHOT_TOTALS = Key(
    template="<ns>:{snapshot}:<shape>:totals",
    type="string: JSON",
    ttl="5 s",
    writer="web processes (snapshot)",
    reader="web processes (snapshot)",
    meaning="counts since the beginning, which are summed less often than the rest",
)
MINUTES = Key(
    template="<ns>:minutes:<queue>",
    type="hash: minute modulo the ring's length, 'minute added done failed'",
    ttl="the ring's length in minutes",
    writer="minute_ring, every few seconds",
    reader="admin, health rules",
    meaning="messages added, done and failed per minute",
)
MESSAGE_STARTS = Key(
    template="<ns>:message:<message>:starts",
    type="string: number",
    ttl="1 day since the latest start; deleted when the message ends",
    writer="workers (message_starts)",
    reader="workers (message_starts)",
    meaning="how often a message was begun and never ended",
)
QUEUE = Key(
    template="<ns>:<queue>",
    type="list: redis message ids",
    ttl="none",
    writer="Dramatiq; the reconciler, where Redis lost a part of a queue",
    reader="queue_depth, jobs",
    meaning="messages ready to run, oldest first",
)
QUEUE_MESSAGES = Key(
    template="<ns>:<queue>.msgs",
    type="hash: redis message id, message",
    ttl="none",
    writer="Dramatiq",
    reader="queue_depth",
    meaning="messages ready or fetched and not acknowledged",
)
DELAYED_MESSAGES = Key(
    template="<ns>:<queue>.DQ.msgs",
    type="hash: redis message id, message",
    ttl="none",
    writer="Dramatiq",
    reader="queue_depth",
    meaning="delayed messages; we make none",
)
DEAD_MESSAGES = Key(
    template="<ns>:<queue>.XQ",
    type="sorted set: redis message id, time in ms",
    ttl="none; Dramatiq drops entries after 1 day",
    writer="Dramatiq",
    reader="queue_depth",
    meaning="messages set aside by the transport; not the ledger's dead letters",
)
BROKER_HEARTBEATS = Key(
    template="<ns>:__heartbeats__",
    type="sorted set: broker id of a process, time of its last command in ms",
    ttl="none",
    writer="Dramatiq; our worker heartbeat, since a healthy worker with full prefetch sends no command",
    reader="Dramatiq",
    meaning="whose fetched messages are its own; of the silent ones they go back to the queue",
)
BROKER_FETCHED = Key(
    template="<ns>:__acks__.<broker>.<queue>",
    type="set: ids in Redis of the messages a process fetched and has not ended",
    ttl="none",
    writer="Dramatiq",
    reader="Dramatiq; our consumers, since what they never received goes back to the queue",
    meaning="whose messages are being worked on",
)

OURS = (
    CIRCUIT,
    CIRCUIT_FAILURES,
    GATE,
    GATE_GROWTH,
    SLOT_LEASES,
    SLOT_COUNTS,
    SLOT_WAITS,
    LOCK,
    FENCE,
    WORKER,
    WORKERS,
    QUEUES,
    DOORBELL_CHANNEL,
    DOORBELL_CHANGED,
    DOORBELL_QUIET,
    SNAPSHOT,
    SNAPSHOT_BUILD,
    SNAPSHOT_TOTALS,
    MINUTES,
    MESSAGE_STARTS,
)
BROKERS = (QUEUE, QUEUE_MESSAGES, DELAYED_MESSAGES, DEAD_MESSAGES, BROKER_HEARTBEATS, BROKER_FETCHED)


def provider_part(provider: str, credential: str) -> str:
    """What stands for a provider and one of its credentials in a key, and names both to people."""
    return f"{provider}:{credential}"


def as_markdown() -> str:
    """The page docs/redis-keys.md."""
    lines = [
        "# Redis keys",
        "",
        "Generated by `python -m shared.coordination.keys`; a test compares. Redis holds transport and shared",
        "state, never truth: every key here may vanish at any moment and costs time, not deliveries.",
        "",
        f"`<ns>` is `{NAMESPACE}` for our keys and `{BROKER_NAMESPACE}` for the broker's, unless set otherwise.",
    ]
    for title, keys in (("Ours", OURS), ("The broker's", BROKERS)):
        lines += ["", f"## {title}", "", "| key | type | time to live | written by | read by | meaning |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [
            f"| `{key.template}` | {key.type} | {key.ttl} | {key.writer} | {key.reader} | {key.meaning} |"
            for key in keys
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
