"""Windows and chains of a worker in the test's own process, over adapters that misbehave."""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID, uuid4

from shared.coordination.guard import Entered
from shared.domain.outcome import Accepted, Outcome
from shared.domain.proof import Nothing, Proof, Unprovable
from shared.domain.retry import RetryPolicy
from shared.domain.states import Channel, Lane, Mode
from shared.jobs import QueueName
from shared.ledger import batches, chains, deliveries
from shared.ledger.chains import ChainKey
from shared.ledger.deliveries import Claim
from shared.ledger.providers import Standing
from tests.integration.workers.inprocess import InProcess
from tests.support.factories import MadeSend
from workers.actors.chain import Chain
from workers.actors.render import Row, renderer
from workers.actors.senders import Sender, Senders
from workers.actors.window import Window
from workers.middleware.runtime import Runtime
from workers.providers.protocol import Message, Provider


def make_window(worker: InProcess, send: MadeSend, *, before_the_calls: Callable[[], object]) -> None:
    """One window as a chain makes it, with something happening between the claim's commit and its calls."""
    runtime, identity = worker.runtime, worker.runtime.lease.worker
    key = ChainKey(send.id, send.channel, 0)
    with runtime.ledger.autocommit() as connection:
        held = [leased.batch_no for leased in batches.lease(connection, key, worker=identity, limit=9)]
        claim = uuid4()
        rows = deliveries.claim_window(
            connection,
            send_id=send.id,
            channel=send.channel,
            worker=identity,
            batches=held,
            claim=claim,
            limit=25,
            provider="ches",
            credential="account",
        )
        content = chains.load_send(connection, send.id)
    assert content is not None
    render = renderer(content, send.channel, default_sender=None)
    left = [before_the_calls]

    def interrupted(row: Row) -> Message:
        if left:
            left.pop()()
        return render(row)

    sender = Senders(runtime).sender(send.channel, Mode.LIVE)
    entered = sender.guards.enter(Lane.BULK, 25)
    assert isinstance(entered, Entered)
    fence = Claim(send.id, send.channel, claim, rows[0].attempt_at, "ches")
    Window(runtime, identity, sender, entered, content, fence, interrupted, Standing(None, None, None)).run(rows)
    sender.guards.leave(entered)
    with runtime.ledger.autocommit() as connection:
        batches.release(connection, key, worker=identity)


class Broken:
    """An adapter with a bug: takes the first message, answers it, and raises at the second."""

    name = "broken"
    credential = "broken"
    resolution = Nothing()

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        yield 0, Accepted("ref")
        raise ZeroDivisionError

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        yield from enumerate(Unprovable("it keeps nothing") for _ in messages)

    def cut(self) -> None:
        """It answers at once, or never."""

    def close(self) -> None:
        """Nothing is open."""


class Only(Senders):
    """Senders that know one adapter."""

    def __init__(self, runtime: Runtime, provider: Provider) -> None:
        super().__init__(runtime)
        self._provider = provider

    def sender(self, channel: Channel, mode: Mode) -> Sender:
        return Sender(self._provider, self.guards_of(self._provider), RetryPolicy())


def run_through(worker: InProcess, send: MadeSend, provider: Provider) -> None:
    """A chain over an adapter of the test's."""
    worker.start(send)
    [message] = worker.messages(QueueName.EMAIL_BULK)
    with worker.runtime.ledger.autocommit() as connection:
        content = chains.load_send(connection, send.id)
    assert content is not None
    key = ChainKey(send.id, send.channel, 0)
    Chain(
        worker.runtime, Only(worker.runtime, provider), worker.jobs, key, UUID(message.kwargs["token"]), content
    ).run()
