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
