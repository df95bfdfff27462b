"""An e-mail digest is a send of the product's own: handed in inside the transaction that says that it was told."""

from uuid import UUID

from shared.domain.digest_bodies import email_digest
from shared.domain.digests import Digest
from shared.domain.ids import new_send_id
from shared.domain.states import Channel, Lane, Mode
from shared.ledger import acceptance, tenants
from shared.ledger.acceptance import AcceptedRow, ChannelRows, Submission
from shared.ledger.db import Connection
from shared.ledger.digest_channels import TakenChannel
from shared.settings import Settings


def sender_of(channel: TakenChannel, settings: Settings) -> str | None:
    """Who an e-mail digest is from; None where neither the channel, its tenant nor EMAIL_FROM says."""
    return channel.config.get("from") or channel.email_from or settings.email_from


def hand_in(connection: Connection, channel: TakenChannel, digest: Digest, settings: Settings) -> UUID:
    """
    Store a digest as a send to the channel's addresses, inside a transaction; its id.

    Its commit tells the digest for good: there is no call whose outcome could get lost. The caller enqueues the send.
    """
    written = email_digest(digest)
    send_id = new_send_id()
    content = {
        "from": sender_of(channel, settings),
        "reply_to": None,
        "subject": written.subject,
        "text": written.text,
        "html": written.html,
    }
    submission = Submission(
        send_id=send_id,
        tenant_id=channel.tenant_id,
        api_key_id=tenants.own_key(connection, channel.tenant_id),
        mode=Mode.LIVE,
        name=f"Digest {channel.name}",
        content={Channel.EMAIL.value: content},
        params=dict(written.params),
        send_at=None,
        valid_until=None,
    )
    rows = [
        AcceptedRow(number, address, None, None, None, None)
        for number, address in enumerate(channel.config["to"], start=1)
    ]
    acceptance.store_rows(connection, send_id=send_id, channel=Channel.EMAIL, rows=rows, now=channel.now)
    counted = ChannelRows(Channel.EMAIL, first_row=1, count=len(rows))
    acceptance.store_send(connection, submission, channels=[counted], lane=Lane.SINGLE, batch_size=settings.batch_size)
    return send_id
