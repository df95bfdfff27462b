-- name: provider_standing
-- What a claim must know before it marks rows: when the provider last took anything, since when it is in an outage (see
-- `note_provider_refused`), and a person's hold on it.
SELECT state.last_accepted_at,
       CASE WHEN state.refused_since > coalesce(state.last_accepted_at, '-infinity')
                 AND state.refused_at > now() - %(unbroken_s)s * interval '1 second'
            THEN state.refused_since END,
       hold.id, hold.provider, hold.credential, hold.operator, hold.reason, hold.since
FROM (VALUES (%(provider)s, %(credential)s)) AS account (provider, credential)
LEFT JOIN provider_state state USING (provider, credential)
LEFT JOIN provider_hold hold USING (provider, credential)

-- name: hold_provider
-- A person holds a provider; one who holds it again gives a new reason, and it is held since the first.
INSERT INTO provider_hold (provider, credential, id, operator, reason, since)
VALUES (%(provider)s, %(credential)s, %(id)s, %(operator)s, %(reason)s, coalesce(%(since)s, now()))
ON CONFLICT (provider, credential) DO UPDATE
SET id = excluded.id, operator = excluded.operator, reason = excluded.reason
RETURNING id, provider, credential, operator, reason, since, xmax = 0

-- name: release_provider
-- A person ends a hold.
DELETE FROM provider_hold WHERE provider = %(provider)s AND credential = %(credential)s RETURNING id

-- name: select_provider_holds
-- Every hold, by name; there are as many as accounts at most.
SELECT id, provider, credential, operator, reason, since FROM provider_hold ORDER BY provider, credential

-- name: note_provider_accepted
-- The provider took something: it works and is set up right. At most once a second per process.
INSERT INTO provider_state (provider, credential, last_accepted_at)
VALUES (%(provider)s, %(credential)s, now())
ON CONFLICT (provider, credential) DO UPDATE
SET last_accepted_at = now(), configuration_error = NULL, configuration_error_at = NULL

-- name: note_provider_taken
-- A call whose outcome nobody knew was taken, as it turned out: no later than this the provider took something.
UPDATE provider_state SET last_accepted_at = %(at)s
WHERE provider = %(provider)s AND credential = %(credential)s
  AND coalesce(last_accepted_at, '-infinity') < %(at)s

-- name: note_provider_refused
-- A call was made and the provider took nothing. An outage goes on while refusals follow one another within
-- `unbroken_s` and nothing is taken; otherwise one begins now. At most once a second per process.
INSERT INTO provider_state AS s (provider, credential, refused_since, refused_at)
VALUES (%(provider)s, %(credential)s, now(), now())
ON CONFLICT (provider, credential) DO UPDATE
SET refused_since = CASE WHEN s.refused_since > coalesce(s.last_accepted_at, '-infinity')
                              AND s.refused_at > now() - %(unbroken_s)s * interval '1 second'
                         THEN s.refused_since ELSE now() END,
    refused_at = now()

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
