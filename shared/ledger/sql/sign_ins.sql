-- name: insert_sign_in_link
-- A link was made; what is in it is known to nobody but its reader. Old ones go with it.
WITH gone AS (DELETE FROM sign_in_link WHERE expires_at < now() - interval '30 days')
INSERT INTO sign_in_link (token_hash, operator, expires_at)
VALUES (%(token_hash)s, %(operator)s, now() + %(lasts_s)s * interval '1 second')

-- name: use_sign_in_link
-- The one use of a link: whoever updates the row first is let in, and nobody after them.
UPDATE sign_in_link SET used_at = now()
WHERE token_hash = %(token_hash)s AND used_at IS NULL AND expires_at > now()
RETURNING operator

-- name: select_sign_in_link
-- Why a link no longer opens anything.
SELECT operator, used_at IS NOT NULL FROM sign_in_link WHERE token_hash = %(token_hash)s

-- name: insert_operator_session
-- Somebody signed in. Sessions long over go with it.
WITH gone AS (DELETE FROM operator_session WHERE expires_at < now() - interval '1 day')
INSERT INTO operator_session (id, operator, subject, role, tokens, expires_at)
VALUES (
  %(id)s, %(operator)s, %(subject)s, %(role)s, %(tokens)s, now() + %(lasts_s)s * interval '1 second'
)

-- name: select_operator_session
-- Who a browser's session belongs to, while it lasts.
SELECT operator, role, tokens IS NOT NULL, extract(epoch FROM now() - checked_at)::float8 FROM operator_session
WHERE id = %(id)s AND ended_at IS NULL AND expires_at > now()

-- name: begin_session_check
-- One process takes it on to ask the provider; another may after 30 s, when that one is taken to have died.
UPDATE operator_session SET check_begun_at = now()
WHERE id = %(id)s AND ended_at IS NULL AND tokens IS NOT NULL
  AND checked_at <= now() - %(older_than_s)s * interval '1 second'
  AND (check_begun_at IS NULL OR check_begun_at < now() - interval '30 seconds')
RETURNING subject, tokens

-- name: confirm_operator_session
-- The provider still gives the person a role.
UPDATE operator_session SET role = %(role)s, tokens = %(tokens)s, checked_at = now(), check_begun_at = NULL
WHERE id = %(id)s AND ended_at IS NULL

-- name: end_operator_session
-- Signed out, or the role is gone: the provider's tokens go at once.
UPDATE operator_session SET ended_at = now(), tokens = NULL WHERE id = %(id)s AND ended_at IS NULL
RETURNING id
