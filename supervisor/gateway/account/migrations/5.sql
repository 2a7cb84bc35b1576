-- Schema 5: batches of requests that a provider works at by itself, for hours (Anthropic Message Batches). Each has one row in `request`,
-- which stays open, also over a restart, until its results are known.
-- What is cached for an hour costs more than what is for five minutes. What a client may have been billed that hung up counts below caps.

CREATE TABLE batch (
    request  INTEGER PRIMARY KEY,           -- its row
    at       REAL NOT NULL,                 -- when it was about to be made
    id       TEXT,                          -- the provider's; null: nobody knows whether the provider has made it
    family   TEXT NOT NULL,                 -- core.gateway.types.Agent.family: whose it is
    key      TEXT NOT NULL,                 -- the client's idempotency key; empty: it gave none
    requests INTEGER NOT NULL               -- how many are in it
) STRICT;

ALTER TABLE request ADD COLUMN cache_write_1h INTEGER;       -- of cache_write; null in rows of schema 4, and while it is open
ALTER TABLE request ADD COLUMN seen_cache_write_1h INTEGER;  -- of seen_cache_write
ALTER TABLE request ADD COLUMN counted_usd REAL;             -- what caps on dollars count instead of cost_usd; null: nothing else
