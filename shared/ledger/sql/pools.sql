-- name: select_connection_limit
-- Connections for everybody but superusers; what a pooler in front of the server gives is its own affair.
SELECT current_setting('max_connections')::int
       - current_setting('superuser_reserved_connections')::int
       - coalesce(current_setting('reserved_connections', true)::int, 0)
