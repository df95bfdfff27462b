"""Failures as they are found: settled deliveries with the attempt that settled them, and the name of its cause."""

from uuid import UUID

from shared.domain.states import Channel, SendStatus
from shared.ledger.db import Ledger
from tests.support.factories import MadeSend, make_send
from tests.support.ledger_rows import put_rows, put_send

CAUSE = "0123456789ab"
TITLE = "CHES 400: invalid recipient domain"


def make_failures(
    ledger: Ledger,
    *,
    count: int = 1,
    status: str = "dead_lettered",
    cause: str = CAUSE,
    title: str = TITLE,
    detail: str = "400: invalid recipient domain",
    tenant: str = "acme",
    channel: Channel = Channel.EMAIL,
    addresses: list[str] | None = None,
    provider: str = "ches",
) -> MadeSend:
    """A completed send all of whose deliveries have settled as `status` for this cause."""
    send = make_send(
        ledger, count=count, addresses=addresses, status=SendStatus.SENDING, tenant=tenant, channel=channel
    )
    outcome = {"failed": "permanent", "dead_lettered": "transient", "unsure": "ambiguous"}[status]
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code,"
            " detail, signature, started_at, ended_at, evidence)"
            " SELECT send_id, row_no, gen_random_uuid(), 0, 5, channel, %(provider)s, %(outcome)s, %(status)s, '400',"
            " %(detail)s, %(cause)s, now() - interval '1 second', now(),"
            " CASE WHEN %(status)s = 'unsure' THEN '{\"bytes_sent\": \"812\"}'::jsonb END"
            " FROM delivery WHERE send_id = %(send)s",
            {
                "provider": provider,
                "outcome": outcome,
                "status": status,
                "detail": detail,
                "cause": cause,
                "send": send.id,
            },
        )
        connection.execute(
            "INSERT INTO failure_group (signature, version, channel, provider, outcome, title, first_seen_at)"
            " VALUES (%s, 1, %s, %s, %s, %s, now() - interval '2 hours') ON CONFLICT DO NOTHING",
            [cause, channel.value, provider, outcome, title],
        )
        connection.execute(
            "UPDATE delivery SET last_error = %s, first_attempt_at = now() WHERE send_id = %s", [detail, send.id]
        )
    put_rows(ledger, send.id, range(1, send.count + 1), status)
    put_send(ledger, send.id, SendStatus.COMPLETED)
    return send


def age_failures(ledger: Ledger, send_id: UUID, age: str) -> None:
    """Make the failures of a send as old as an interval says."""
    with ledger.autocommit() as connection:
        connection.execute("UPDATE failure SET failed_at = now() - %s::interval WHERE send_id = %s", [age, send_id])


def fail_again(ledger: Ledger, send_id: UUID, rows: list[int]) -> None:
    """Make deliveries that were requeued fail as they did before, in their new epoch."""
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code,"
            " detail, signature, started_at, ended_at) SELECT a.send_id, a.row_no, gen_random_uuid(), d.epoch, 5,"
            " a.channel, a.provider, a.outcome, a.became, a.code, a.detail, a.signature, now(), now()"
            " FROM attempt a JOIN delivery d USING (send_id, row_no)"
            " WHERE a.send_id = %s AND a.row_no = ANY (%s) AND a.epoch = 0",
            [send_id, rows],
        )
    put_rows(ledger, send_id, rows, "dead_lettered")
