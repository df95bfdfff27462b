-- name: ledger_clock
-- The moment by the clock that writes all others: of a preview, of a look at what is unsure.
SELECT now()
