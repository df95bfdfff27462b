"""How a submission is cut into batches."""

from shared.domain.ids import new_send_id
from shared.domain.states import Channel, Lane, Mode
from shared.ledger import acceptance
from shared.ledger.acceptance import ChannelRows, Submission
from shared.ledger.db import Ledger
from tests.support.factories import make_tenant
from tests.support.ledger_rows import one


def test_channels_whose_rows_together_pass_a_smallint_are_cut_into_batches(ledger: Ledger) -> None:
    send_id = new_send_id()
    channels = [ChannelRows(Channel.EMAIL, 1, 20_000), ChannelRows(Channel.SMS, 20_001, 20_000)]
    with ledger.transaction() as connection:
        tenant_id, key_id = make_tenant(connection)
        submission = Submission(send_id, tenant_id, key_id, Mode.LIVE, None, {}, {}, None, None)
        acceptance.store_send(connection, submission, channels=channels, lane=Lane.BULK, batch_size=25)
    cut = one(ledger, "SELECT count(*) AS n, max(last_row) AS last, sum(owed) AS owed FROM batch")
    assert cut == {"n": 1_600, "last": 40_000, "owed": 40_000}
