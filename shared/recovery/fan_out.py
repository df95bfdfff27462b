"""Sends that were accepted, or resumed, and that nobody took further: their fan-out is asked for once more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from shared.coordination.queue_depth import Queues
from shared.jobs import Jobs, QueueName
from shared.ledger.recovery import StuckSend
from shared.recovery.passes import Counts, Kind


@dataclass(frozen=True, slots=True)
class FanOuts:
    """
    Enqueues ingest messages anew.

    The first message may still wait in a long queue: then the send is fanned out once, and the other finds it done.
    """

    queues: Queues
    jobs: Jobs

    def ask_again(self, waiting: Sequence[StuckSend], counts: Mapping[Kind, Counts]) -> list[UUID]:
        """
        Ask for these sends, unless the message that was enqueued anew before still waits; count them by kind.

        Returns: those asked for.

        Raises: RedisUnavailable and redis.RedisError when Redis is away.
        """
        if not waiting:
            return []
        asked = []
        there = self.queues.existing([(QueueName.INGEST.value, str(stuck.send_id)) for stuck in waiting])
        for stuck in waiting:
            if (QueueName.INGEST.value, str(stuck.send_id)) in there:
                continue
            kind = counts["pending" if stuck.kind == "pending" else "ingestion"]
            kind.found += 1
            self.jobs.ingest(stuck.send_id, message_id=stuck.send_id)
            kind.requeued += 1
            asked.append(stuck.send_id)
        return asked
