"""The counts of the minutes, made to agree with rows that a test put there by hand."""

from typing import Any

_AGREE = """
WITH ledger AS (
    SELECT s.mode, b.channel, sum(b.last_row - b.first_row + 1) AS accepted, sum(b.sent) AS sent,
           sum(b.suppressed) AS suppressed, sum(b.cancelled) AS cancelled, sum(b.expired) AS expired,
           sum(b.failed + b.dead_lettered + b.unsure) AS broken
    FROM batch b JOIN send s ON s.id = b.send_id GROUP BY 1, 2
), minutes AS (
    SELECT mode, channel, sum(accepted) AS accepted, sum(sent) AS sent, sum(suppressed) AS suppressed,
           sum(cancelled) AS cancelled, sum(expired) AS expired,
           sum(failed + dead_lettered + unsure - requeued - resolved) AS broken
    FROM minute_count GROUP BY 1, 2
)
INSERT INTO minute_count AS m (minute, writer, mode, channel, provider, took, accepted, sent, suppressed, cancelled,
                               expired, failed)
SELECT date_trunc('minute', now()) - interval '3 hours', 0, mode, channel, 'by hand', 1,
       l.accepted - coalesce(c.accepted, 0), l.sent - coalesce(c.sent, 0), l.suppressed - coalesce(c.suppressed, 0),
       l.cancelled - coalesce(c.cancelled, 0), l.expired - coalesce(c.expired, 0), l.broken - coalesce(c.broken, 0)
FROM ledger l LEFT JOIN minutes c USING (mode, channel)
ON CONFLICT (minute, writer, mode, channel, provider, took) DO UPDATE
SET accepted = m.accepted + excluded.accepted, sent = m.sent + excluded.sent,
    suppressed = m.suppressed + excluded.suppressed, cancelled = m.cancelled + excluded.cancelled,
    expired = m.expired + excluded.expired, failed = m.failed + excluded.failed
"""


def agree(connection: Any) -> None:
    """Count what was put by hand, three hours ago: in no figure of the last hour."""
    connection.execute(_AGREE)
