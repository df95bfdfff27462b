-- A send cancelled by a person: it stops at once, as a pause, and is cancelled for good when the time to undo it is over.

-- name: begin_cancel
-- It stops: no claim of it succeeds from this commit on. One that was paused already keeps its moment and its reason,
-- by which an undo leaves it so. Guard: it is not over, and nobody is cancelling it already.
UPDATE send
SET status = 'paused', paused_at = CASE WHEN status = 'paused' THEN paused_at ELSE now() END,
    pause_reason = CASE WHEN status = 'paused' THEN pause_reason ELSE %(reason)s END,
    paused_by = CASE WHEN status = 'paused' THEN paused_by ELSE %(operator)s END,
    cancel_asked_at = now(), cancel_asked_by = %(operator)s
WHERE id = %(send_id)s AND status IN ('pending', 'queued', 'scheduled', 'sending', 'paused')
  AND NOT (status = 'paused' AND cancel_asked_at IS NOT NULL AND paused_at <= cancel_asked_at)
RETURNING id

-- name: undo_cancel
-- It goes on where it was, or stays paused where it was. Guard: it is being cancelled.
UPDATE send
SET status = CASE WHEN paused_at < cancel_asked_at THEN 'paused' WHEN started_at IS NOT NULL THEN 'sending'
                  WHEN send_at > now() THEN 'scheduled' ELSE 'queued' END,
    queued_at = CASE WHEN paused_at < cancel_asked_at THEN queued_at ELSE coalesce(queued_at, now()) END,
    resumed_at = CASE WHEN paused_at < cancel_asked_at THEN resumed_at ELSE now() END,
    pause_reason = CASE WHEN paused_at < cancel_asked_at THEN pause_reason END,
    paused_by = CASE WHEN paused_at < cancel_asked_at THEN paused_by END,
    paused_at = CASE WHEN paused_at < cancel_asked_at THEN paused_at END,
    cancel_asked_at = NULL, cancel_asked_by = NULL
WHERE id = %(send_id)s AND status = 'paused' AND paused_at <= cancel_asked_at
RETURNING status

-- name: is_being_cancelled
-- Whether an operator cancels it, which can still be undone.
SELECT 1 FROM send WHERE id = %(send_id)s AND status = 'paused' AND paused_at <= cancel_asked_at

-- name: finish_cancels
-- Those whose time to undo it is over. Guard: paused since they were to be cancelled, or before; a pause that came later
-- is another.
UPDATE send
SET status = 'cancelled', cancelled_at = now(), paused_at = NULL, pause_reason = NULL, paused_by = NULL
WHERE id = ANY (ARRAY(
    SELECT id FROM send
    WHERE status = 'paused' AND paused_at <= cancel_asked_at
      AND cancel_asked_at <= now() - %(undo_s)s * interval '1 second'
    ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED))
RETURNING id, cancel_asked_by
