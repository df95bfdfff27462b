-- name: provider_last_accepted
-- When a provider and credential last took anything; decides whether a failure uses up an attempt.
SELECT last_accepted_at FROM provider_state WHERE provider = %(provider)s AND credential = %(credential)s

-- name: note_provider_accepted
-- The provider took something: it works and is set up right. At most once a second per process.
INSERT INTO provider_state (provider, credential, last_accepted_at)
VALUES (%(provider)s, %(credential)s, now())
ON CONFLICT (provider, credential) DO UPDATE
SET last_accepted_at = now(), configuration_error = NULL, configuration_error_at = NULL

-- name: note_provider_misconfigured
-- The provider refused our account or set-up; shown as a warning until it takes something again.
INSERT INTO provider_state (provider, credential, configuration_error, configuration_error_at)
VALUES (%(provider)s, %(credential)s, %(error)s, now())
ON CONFLICT (provider, credential) DO UPDATE
SET configuration_error = excluded.configuration_error, configuration_error_at = now()

-- name: select_provider_states
-- Every provider and credential that a call was made with.
SELECT provider, credential, last_accepted_at, configuration_error, configuration_error_at
FROM provider_state ORDER BY provider, credential
