-- name: insert_failed_job
-- A worker: a message ended in an exception, or was set aside. The newest thousand are kept.
WITH noted AS (
    INSERT INTO failed_job (queue, job, kind, send_id, tenant_id, error, starts)
    VALUES (%(queue)s, %(job)s, %(kind)s, %(send_id)s, (SELECT tenant_id FROM send WHERE id = %(send_id)s), %(error)s,
            %(starts)s)
    RETURNING id
)
DELETE FROM failed_job WHERE id <= (SELECT id FROM noted) - 1000

-- name: select_failed_jobs
-- The Failures page: the newest ones, with the tenants' names.
SELECT j.id, j.at, j.queue, j.job, j.kind, j.send_id, t.name, j.error, j.starts
FROM (SELECT * FROM failed_job ORDER BY id DESC LIMIT %(limit)s) AS j
LEFT JOIN tenant t ON t.id = j.tenant_id
ORDER BY j.id DESC
