"""
The cost of a window does not grow with its send. Counted in pages touched, which no busy machine changes.

Right after acceptance the planner knows nothing of the new rows, and after a few calls it may prefer a plan made
for any parameters: both once made a claim of a hundred read the whole send.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, LiteralString
from uuid import UUID, uuid4

import pytest

from shared.domain.digests import NotificationStatus
from shared.domain.requeue import FailureFilter, LeftOut
from shared.domain.states import Channel, DeliveryStatus, Lane, SendStatus
from shared.ledger import (
    batches,
    chains,
    deliveries,
    digest_channels,
    notifications,
    proofs,
    recipient_search,
    requeue,
    retention,
    send_page,
)
from shared.ledger.chains import ChainKey
from shared.ledger.db import Connection, Ledger
from tests.integration.ledger.hand import Hand, ended, proved
from tests.support.digests import make_channel
from tests.support.factories import MadeSend, make_send
from tests.support.failing import make_failures

ROWS = 100_000
#: pages; a window of 100 rows touches some 400, the send has 3,000 of rows alone
MOST_PAGES = 2_000
#: psycopg prepares a statement it has seen five times, Postgres then tries five plans before a general one
TIMES = 14

_PAGES = """
    SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int FROM pg_statio_user_tables
    WHERE relname IN ('delivery', 'batch', 'attempt', 'notification', 'operation_item')
"""


@pytest.fixture
def big(ledger: Ledger) -> MadeSend:
    """A send just loaded; nothing has analysed it."""
    return make_send(ledger, count=ROWS, status=SendStatus.SENDING)


@contextmanager
def pages(connection: Connection, found: list[int]) -> Iterator[None]:
    """Append the pages of these tables that the block touched."""

    def so_far() -> int:
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute(_PAGES).fetchone()
        assert row is not None
        return int(row[0] or 0)

    before = so_far()
    yield
    found.append(so_far() - before)


def work(connection: Connection, send: MadeSend, worker: UUID, measure: dict[str, list[int]]) -> None:
    """Windows as a chain makes them: release, lease, claim of 100, records of 25."""
    chain = ChainKey(send.id, Channel.EMAIL, 0)
    held: list[int] = []
    for _ in range(TIMES):
        with pages(connection, measure["lease"]):
            batches.release(connection, chain, worker=worker, batches=held)
            held = [leased.batch_no for leased in batches.lease(connection, chain, worker=worker, limit=4)]
        claim, rows = _claim(connection, send, worker, held, measure)
        for start in range(0, 100, 25):
            results = [ended(row, DeliveryStatus.SENT) for row in rows[start : start + 25]]
            with pages(connection, measure["record"]):
                assert deliveries.record(connection, claim, results) == []
    with pages(connection, measure["lease"]):
        batches.release(connection, chain, worker=worker)


def _claim(
    connection: Connection, send: MadeSend, worker: UUID, held: list[int], measure: dict[str, list[int]]
) -> tuple[deliveries.Claim, list[deliveries.ClaimedDelivery]]:
    claim_id = uuid4()
    with pages(connection, measure["claim"]):
        rows = deliveries.claim_window(
            connection,
            send_id=send.id,
            channel=Channel.EMAIL,
            worker=worker,
            batches=held,
            claim=claim_id,
            limit=100,
            provider="ches",
            credential="account",
        )
    assert len(rows) == 100
    return deliveries.Claim(send.id, Channel.EMAIL, claim_id, rows[0].attempt_at, "ches"), rows


def test_a_window_of_a_send_just_loaded_touches_only_its_own_pages(ledger: Ledger, hand: Hand, big: MadeSend) -> None:
    measure: dict[str, list[int]] = {"lease": [], "claim": [], "record": []}
    hand.register()
    with ledger.autocommit() as connection:
        work(connection, big, hand.worker, measure)
        prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert prepared is not None
    assert prepared[0] > 0
    worst = {name: max(found) for name, found in measure.items()}
    assert worst == {name: most for name, most in worst.items() if most < MOST_PAGES}, worst


@pytest.mark.parametrize("statement", ["free", "sweep"])
def test_freeing_or_sweeping_a_batch_touches_only_its_own_pages(
    ledger: Ledger, hand: Hand, big: MadeSend, statement: str
) -> None:
    hand.register()
    leased = hand.lease(big, limit=1)
    hand.claim(big, [leased[0].batch_no])
    hand.die()
    one_batch: dict[str, Callable[[Connection], object]] = {
        "free": lambda connection: batches.free_abandoned(
            connection, batches.AbandonedBatch(big.id, leased[0].batch_no, hand.worker, Lane.BULK)
        ),
        "sweep": lambda connection: batches.sweep(connection, send_id=big.id, status=DeliveryStatus.CANCELLED, limit=4),
    }
    found: list[int] = []
    with ledger.autocommit() as connection, pages(connection, found):
        assert one_batch[statement](connection)
    assert found[0] < MOST_PAGES


def test_looking_at_unsure_rows_of_a_batch_touches_only_its_own_pages(
    ledger: Ledger, hand: Hand, big: MadeSend
) -> None:
    hand.register()
    found: list[int] = []
    with ledger.autocommit() as connection:
        for _ in range(TIMES):
            [leased] = hand.lease(big, limit=1)
            claim, rows = hand.claim(big, [leased.batch_no])
            lost = batches.AbandonedBatch(big.id, leased.batch_no, hand.worker, Lane.BULK)
            hand.die()
            batches.free_abandoned(connection, lost, first_look_s={"ches": 0.0})
            connection.execute("UPDATE worker SET lease_until = now() + interval '1 hour'")
            this = proofs.ProvedBatch(big.id, leased.batch_no)
            with pages(connection, found):
                looked = proofs.take(connection, this, hold_s=60, limit=100)
                results = [proved(row, DeliveryStatus.SENT) for row in looked[1:]]
                assert proofs.record(connection, this, results) == []
            with pages(connection, found):
                assert deliveries.record_late(
                    connection, claim, ended(rows[0], DeliveryStatus.SENT), late_claim=uuid4()
                )
            with pages(connection, found):
                proofs.find_due(connection, limit=20)
    assert max(found) < MOST_PAGES


def test_the_poison_guard_reads_the_faults_of_its_own_time(ledger: Ledger) -> None:
    send = make_send(ledger, status=SendStatus.SENDING)
    older = make_send(ledger, age="1 hour")
    found: list[int] = []
    with ledger.autocommit() as connection:
        for id_, signature in ((send.id, None), (older.id, "s")):
            connection.execute(
                "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became,"
                " signature, started_at, ended_at) SELECT %s, n, gen_random_uuid(), 0, 1, 'email', 'ches', 'permanent',"
                " 'failed', %s, now() - interval '10 minutes', now() - interval '10 minutes'"
                " FROM generate_series(1, 20000) AS n",
                [id_, signature],
            )
        connection.execute("ANALYZE attempt")
        with pages(connection, found):
            assert not chains.pause_poisoned(connection, send.id, signature="s", most=5, reason="r")
    assert found[0] < 100


def test_the_operations_of_a_send_are_found_without_reading_the_items_of_all(ledger: Ledger) -> None:
    send = make_send(ledger)
    found: list[int] = []
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO operation (id, kind, status, operator, filter, as_of, run_at, total, ended_at)"
            " SELECT gen_random_uuid(), 'requeue', 'done', 'kim', '{}', now(), now(), 20000, now()"
            " FROM generate_series(1, 200)"
        )
        connection.execute(
            "INSERT INTO operation_item (operation_id, send_id, row_no, epoch, result)"
            " SELECT (SELECT id FROM operation LIMIT 1), %s, n, 0, 'done' FROM generate_series(1, 20000) AS n",
            [send.id],
        )
        connection.execute("ANALYZE operation_item")
        with pages(connection, found):
            (shown,) = send_page.operations(connection, send.id, limit=20)
    assert (shown.of_send, shown.is_cut) == (send_page.MOST_COUNTED, True)
    assert found[0] < MOST_PAGES


def test_sends_to_forget_are_found_without_reading_the_batches_of_all(ledger: Ledger) -> None:
    send = make_send(ledger)
    found: list[int] = []
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO send (id, tenant_id, api_key_id, mode, lane, status, content, accepted, started_at,"
            " completed_at, settled_counts) SELECT gen_random_uuid(), tenant_id, api_key_id, mode, lane, 'completed',"
            " '{}', '{}', now(), now() - interval '40 days' + n * interval '1 second', '{}'"
            " FROM send, generate_series(1, 20000) AS n WHERE id = %s",
            [send.id],
        )
        connection.execute(
            "INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, owed, sent, settled_at)"
            " SELECT id, n, 'email', n, n, 0, 1, now() FROM send, generate_series(1, 3) AS n WHERE id <> %s",
            [send.id],
        )
        connection.execute("ANALYZE send, batch")
        for _ in range(TIMES):
            with pages(connection, found):
                assert len(retention.old_sends(connection, days=30, limit=10)) == 10
    assert max(found) < 400


def test_looking_for_an_address_touches_only_the_pages_it_looks_at(ledger: Ledger, big: MadeSend) -> None:
    found: list[int] = []
    with ledger.autocommit() as connection, pages(connection, found), connection.transaction():
        connection.execute("SET LOCAL random_page_cost = 50")  # as if nothing were where its key says
        looked = recipient_search.look(
            lambda: nullcontext(connection), Channel.EMAIL, "nobody@example.com", most=1, seconds=0
        )
    assert looked.count == recipient_search.CHUNK
    assert found[0] < MOST_PAGES


def test_the_history_of_digests_finds_what_is_rare_without_reading_what_is_not(ledger: Ledger) -> None:
    busy = make_channel(ledger, "https://example.com/busy", name="busy")
    quiet = make_channel(ledger, "https://example.com/quiet", name="quiet", tenant="globex")
    told: LiteralString = (
        "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, finding_key, occurred_at, status,"
        " sent_at, final_at, dispatch_batch_id) SELECT %(channel)s, %(kind)s || n, %(kind)s, 's', 'low', %(finding)s,"
        " now(), %(status)s, CASE WHEN %(status)s = 'sent' THEN now() END, now(), gen_random_uuid()"
        " FROM generate_series(1, %(count)s) n"
    )
    with ledger.autocommit() as connection:
        for channel, kind, finding, status, count in (
            (busy, "rare", "image:nginx", "suppressed", 3),
            (quiet, "update", None, "dead_lettered", 3),
            (busy, "update", "image:redis", "sent", ROWS),
        ):
            given = {"channel": channel, "kind": kind, "finding": finding, "status": status, "count": count}
            connection.execute(told, given)
        connection.execute("ANALYZE notification")
        asked: list[tuple[int, dict[str, Any]]] = [
            (3, {"kind": "rare"}),
            (0, {"kind": "none-such"}),
            (3, {"status": NotificationStatus.SUPPRESSED}),
            (3, {"status": NotificationStatus.DEAD_LETTERED}),
            (3, {"finding": "image:nginx"}),
            (3, {"channel": "quiet"}),
            (3, {"tenant": "globex"}),
            (0, {"batch": uuid4()}),
            (51, {}),
        ]
        for count, only in asked:
            touched: list[int] = []
            with pages(connection, touched):
                assert len(notifications.history(connection, limit=51, **only)) == count
            assert touched[0] < 500, (only, touched)


def test_channels_are_shown_without_reading_the_dead_letters_that_were_discarded(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook")
    touched: list[int] = []
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, occurred_at, status, final_at,"
            " discarded_at) SELECT %s, n::text, 'update', 's', 'low', now(), 'dead_lettered', now(),"
            " CASE WHEN n > 3 THEN now() END FROM generate_series(1, 20000) n",
            [channel],
        )
        connection.execute("ANALYZE notification")
        with pages(connection, touched):
            (shown,) = digest_channels.every(connection)
    assert shown.dead_lettered == 3
    assert touched[0] < 50


def test_a_preview_of_failures_reads_no_deliveries_whatever_was_reported_and_is_suppressed(ledger: Ledger) -> None:
    make_failures(ledger, count=500)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET receipt_status = 'delivered' WHERE row_no % 10 = 0")
        connection.execute(
            "INSERT INTO suppression (tenant_id, channel, address, reason)"
            " SELECT id, 'email', 'person' || number || '@example.com', 'bounce'"
            " FROM tenant, generate_series(0, 999, 7) AS number"
        )
        connection.execute("ANALYZE")
    found: list[int] = []
    with ledger.transaction() as connection, pages(connection, found):
        seen = requeue.judge(connection, FailureFilter(), accepts_duplicates=False)
    assert (seen.total, seen.left_out) == (385, {LeftOut.REPORTED: 50, LeftOut.SUPPRESSED: 65})
    assert found == [0]


def test_a_preview_of_the_newest_few_is_found_once_and_not_for_each_failure(ledger: Ledger) -> None:
    make_failures(ledger, count=4_000)
    with ledger.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = '2s'")  # found for each of them, it takes ten
        seen = requeue.judge(connection, FailureFilter(first=11), accepts_duplicates=False)
    assert (seen.total, seen.left_out) == (11, {LeftOut.MORE: 3_989})
