-- The schemas of the account, each of which leads on from the one before. What is released is never edited.

-- Schema 1. Times are wall-clock seconds since 1970 (UTC); durations are milliseconds by the monotonic clock; money is US dollars.

CREATE TABLE request (
    id                INTEGER PRIMARY KEY,
    at                REAL NOT NULL,             -- when it was about to be sent
    agent             TEXT NOT NULL,             -- the task's id
    epoch             INTEGER NOT NULL,
    class             TEXT NOT NULL,             -- core.crew.TaskClass
    model             TEXT NOT NULL,             -- as sent
    api               TEXT NOT NULL,             -- the lane: core.gateway.nouns.LaneKey
    model_class       TEXT NOT NULL,
    long_context      INTEGER NOT NULL,
    account           TEXT NOT NULL,             -- with the lane: the pool whose limit it counts against
    upstream          TEXT NOT NULL,
    attempt_no        INTEGER NOT NULL,          -- 1, and one more for each time that this request was sent again
    session           TEXT NOT NULL,
    body_sha256       TEXT NOT NULL,
    queued_ms         REAL NOT NULL,
    bound_input       INTEGER NOT NULL,          -- the most that it can take
    bound_output      INTEGER NOT NULL,
    bound_cache_read  INTEGER NOT NULL,
    bound_cache_write INTEGER NOT NULL,
    bound_usd         REAL,                      -- null: the model has no known price
    end               TEXT,                      -- null: it is open
    status            INTEGER,
    input             INTEGER,                   -- what it is charged
    output            INTEGER,
    cache_read        INTEGER,
    cache_write       INTEGER,
    estimated         INTEGER NOT NULL DEFAULT 0,
    cost_usd          REAL,                      -- null: the model has no known price
    first_byte_ms     REAL,
    total_ms          REAL,
    retries           INTEGER NOT NULL DEFAULT 0,
    breaker           TEXT NOT NULL DEFAULT '',
    flags             TEXT NOT NULL DEFAULT ''   -- separated by commas
) STRICT;
CREATE INDEX request_at ON request (at);
CREATE INDEX request_agent ON request (agent, at);
CREATE INDEX request_open ON request (id) WHERE end IS NULL;

CREATE TABLE turned_away (                       -- what we answered ourselves
    at           REAL NOT NULL,
    agent        TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    api          TEXT NOT NULL,
    model_class  TEXT NOT NULL,
    long_context INTEGER NOT NULL,
    status       INTEGER NOT NULL,
    why          TEXT NOT NULL,
    waited_ms    REAL NOT NULL
) STRICT;
CREATE INDEX turned_away_at ON turned_away (at);
CREATE INDEX turned_away_agent ON turned_away (agent, at);

CREATE TABLE journal (                           -- changes of breakers, and alerts
    seq   INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    about TEXT NOT NULL,                         -- the pool, or what the alert is about
    event TEXT NOT NULL,
    data  TEXT NOT NULL                          -- JSON object
) STRICT;
CREATE INDEX journal_at ON journal (at);

CREATE TABLE recording (
    request     INTEGER PRIMARY KEY,
    at          REAL NOT NULL,
    run         TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,                   -- of the body as the client sent it
    status      INTEGER NOT NULL,
    file        TEXT NOT NULL                    -- below the recordings' directory
) STRICT;
CREATE INDEX recording_run ON recording (run, endpoint, body_sha256);
CREATE INDEX recording_at ON recording (at);

CREATE TABLE memory (                            -- what was learned, kept over a restart
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL                          -- JSON
) STRICT, WITHOUT ROWID;

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

-- Schema 3: beside the model that was sent (`model`, which answers) the one that the client asked for: a route may rename it, and its
-- fallback may answer in its place. Empty in rows of schema 2.

ALTER TABLE request ADD COLUMN asked TEXT NOT NULL DEFAULT '';

-- Schema 4: what proves a request. Empty and null in rows of schema 3.

ALTER TABLE request ADD COLUMN trace TEXT NOT NULL DEFAULT '';  -- core.audit_events.trace_id of its task
ALTER TABLE request ADD COLUMN input_sha256 TEXT;               -- of the body as the client sent it
ALTER TABLE request ADD COLUMN output_sha256 TEXT;              -- of the answer's body as the client got it; null: it got none

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

-- Schema 6: the weight of a request's work and why, where a route asks for it (empty where none does), and what an engine spent on it.

ALTER TABLE request ADD COLUMN work TEXT NOT NULL DEFAULT '';
ALTER TABLE request ADD COLUMN work_why TEXT NOT NULL DEFAULT '';
ALTER TABLE request ADD COLUMN engine_ms REAL NOT NULL DEFAULT 0;  -- from the sending to the end, where an engine served it
ALTER TABLE request ADD COLUMN kv_bytes INTEGER NOT NULL DEFAULT 0;  -- its prompt and answer in the engine's memory; 0: nobody knows
