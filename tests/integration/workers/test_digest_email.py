"""Digests by e-mail: sends of the product's own."""

from typing import Any

import pytest
from psycopg.rows import dict_row

from shared.domain.digests import ChannelType
from shared.jobs import JobName
from shared.ledger import digest_channels, notifications
from shared.ledger.db import Ledger
from tests.integration.workers.conftest import MakeWorker
from tests.integration.workers.inprocess import InProcess
from tests.support.digests import event, make_channel, post, rows, statuses
from tests.support.ledger_rows import scalar
from workers.actors.digest_record import Recorder

TO = ["ada@example.com", "bob@example.org"]


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    return make_worker(email_from=None)


def letters(ledger: Ledger) -> list[dict[str, Any]]:
    with ledger.autocommit() as connection, connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM sandbox_message ORDER BY address").fetchall()


def test_a_digest_by_email_is_a_send_of_its_tenant_in_text_and_html(ledger: Ledger, worker: InProcess) -> None:
    make_channel(ledger, type_=ChannelType.EMAIL, setup={"to": TO})
    post(ledger, event("a", subject="nginx <b>1.3</b> {{ is }} out"), "b")
    worker.call(JobName.DIGEST, slot=0)
    assert statuses(ledger) == {"a": "sent", "b": "sent"}
    assert len({row.batch for row in rows(ledger).values()}) == 1
    with ledger.autocommit() as connection:
        (message,) = notifications.messages(connection, limit=10)
    assert message.reference == f"send {scalar(ledger, 'SELECT id FROM send')}"
    worker.work_off()
    worker.tick()
    worker.work_off()
    ada, bob = letters(ledger)
    assert [ada["address"], bob["address"]] == TO
    assert ada["sender"] == "Acme <news@example.com>"
    assert "nginx <b>1.3</b> {{ is }} out" in ada["text"]
    assert "about b" in ada["text"]
    assert "nginx &lt;b&gt;1.3&lt;/b&gt; {{ is }} out" in ada["html"]
    assert scalar(ledger, "SELECT status FROM send") == "completed"
    worker.call(JobName.DIGEST, slot=0)
    assert scalar(ledger, "SELECT count(*) FROM send") == 1


def test_without_a_sender_nothing_is_lost_and_no_attempt_used(ledger: Ledger, worker: InProcess) -> None:
    make_channel(ledger, type_=ChannelType.EMAIL, setup={"to": TO})
    with ledger.autocommit() as connection:
        connection.execute("UPDATE tenant SET email_from = NULL")
    post(ledger, "a")
    worker.call(JobName.DIGEST, slot=0)
    row = rows(ledger)["a"]
    assert (row.status, row.attempts) == ("pending", 0)
    with ledger.autocommit() as connection:
        channel = digest_channels.find(connection, "ops")
        assert channel is not None
        assert "no sender" in (channel.not_configured or "")
        connection.execute("UPDATE tenant SET email_from = 'Acme <news@example.com>'")
        digest_channels.look_again(connection)
    worker.call(JobName.DIGEST, slot=0)
    assert statuses(ledger) == {"a": "sent"}


def test_a_digest_by_email_that_is_overtaken_stores_no_send(ledger: Ledger, worker: InProcess) -> None:
    channel = make_channel(ledger, type_=ChannelType.EMAIL, setup={"to": TO})
    post(ledger, "a")
    with ledger.transaction() as connection:
        taken = digest_channels.take(connection, channel)
        assert taken is not None
        notifications.detect(connection, channel)
        claimed = notifications.claim(connection, taken, lease_s=-1)
    assert claimed is not None
    worker.call(JobName.DIGEST, slot=0)
    assert scalar(ledger, "SELECT count(*) FROM send") == 1
    recorder = Recorder(worker.runtime, worker.jobs, began=None)
    assert recorder.tell_by_email(taken, claimed) is None
    assert scalar(ledger, "SELECT count(*) FROM send") == 1
