-- name: register_worker
-- A worker process begins. Called at process start, and again when its row was lost.
INSERT INTO worker (id, name, lease_until)
VALUES (%(worker)s, %(name)s, now() + %(lease_s)s * interval '1 second')
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until

-- name: renew_worker
-- The one statement per process and renewal that keeps every batch and chain it holds.
-- No row: the lease was lost and the process must hold nothing any more.
UPDATE worker
SET lease_until = now() + %(lease_s)s * interval '1 second'
WHERE id = %(worker)s AND lease_until > now()
RETURNING id

-- name: remove_worker
-- A clean exit: what it still held is free at once.
DELETE FROM worker WHERE id = %(worker)s

-- name: shorten_leases
-- Housekeeping: a lease that ends later than any can was given before Postgres' clock went back. Its holder renews it
-- long before `longest_s` is over, or is dead, and what it held is free then.
UPDATE worker SET lease_until = now() + %(longest_s)s * interval '1 second'
WHERE lease_until > now() + %(longest_s)s * interval '1 second'

-- name: forget_dead_workers
-- Rows of processes dead for a day; nothing refers to them once their batches and chains are free.
DELETE FROM worker w
WHERE w.lease_until < now() - interval '1 day'
  AND NOT EXISTS (SELECT 1 FROM batch b WHERE b.holder = w.id)
  AND NOT EXISTS (SELECT 1 FROM chain c WHERE c.holder = w.id)
