-- Schema 2: beside the most that a request can take (bound_*) what it was expected to take, and what the provider had said of it when the
-- gateway last looked: a sending that was open when the gateway died is charged by these. Null in rows of schema 1.
-- `body_key` tells one agent's bodies apart (their length and a CRC-32 of a sample; in rows of schema 1 it is the body's SHA-256).

ALTER TABLE request RENAME COLUMN body_sha256 TO body_key;
ALTER TABLE request ADD COLUMN expected_input INTEGER;
ALTER TABLE request ADD COLUMN expected_output INTEGER;
ALTER TABLE request ADD COLUMN expected_cache_read INTEGER;
ALTER TABLE request ADD COLUMN expected_cache_write INTEGER;
ALTER TABLE request ADD COLUMN seen_input INTEGER;         -- null: the provider had not said it
ALTER TABLE request ADD COLUMN seen_output INTEGER;        -- null: nothing was seen
ALTER TABLE request ADD COLUMN seen_cache_read INTEGER;
ALTER TABLE request ADD COLUMN seen_cache_write INTEGER;
