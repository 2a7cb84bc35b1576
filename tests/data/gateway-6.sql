BEGIN TRANSACTION;
CREATE TABLE batch (
    request  INTEGER PRIMARY KEY,           -- its row
    at       REAL NOT NULL,                 -- when it was about to be made
    id       TEXT,                          -- the provider's; null: nobody knows whether the provider has made it
    family   TEXT NOT NULL,                 -- core.gateway.types.Agent.family: whose it is
    key      TEXT NOT NULL,                 -- the client's idempotency key; empty: it gave none
    requests INTEGER NOT NULL               -- how many are in it
) STRICT;
CREATE TABLE journal (                           -- changes of breakers, and alerts
    seq   INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    about TEXT NOT NULL,                         -- the pool, or what the alert is about
    event TEXT NOT NULL,
    data  TEXT NOT NULL                          -- JSON object
) STRICT;
INSERT INTO "journal" VALUES(1,1700000000.0,'work/anthropic/opus-4','breaker','{"breaker": "limit", "before": "closed", "after": "open", "why": "429", "numbers": {"level": -5.0, "outside": 3.25}}');
INSERT INTO "journal" VALUES(2,1700000000.0,'key of work','alert','{"text": "the key of work was refused"}');
CREATE TABLE memory (                            -- what was learned, kept over a restart
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL                          -- JSON
) STRICT, WITHOUT ROWID;
INSERT INTO "memory" VALUES('learned','{"pools": {"work": {"margin": 0.97}}}');
CREATE TABLE recording (
    request     INTEGER PRIMARY KEY,
    at          REAL NOT NULL,
    run         TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,                   -- of the body as the client sent it
    status      INTEGER NOT NULL,
    file        TEXT NOT NULL                    -- below the recordings' directory
) STRICT;
INSERT INTO "recording" VALUES(1,1700000000.0,'1121-k3f9','POST /v1/messages?beta=true','abababababababababababababababababababababababababababababababab',200,'1121-k3f9/1.tape');
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
    body_key       TEXT NOT NULL,
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
, expected_input INTEGER, expected_output INTEGER, expected_cache_read INTEGER, expected_cache_write INTEGER, seen_input INTEGER, seen_output INTEGER, seen_cache_read INTEGER, seen_cache_write INTEGER, asked TEXT NOT NULL DEFAULT '', trace TEXT NOT NULL DEFAULT '', input_sha256 TEXT, output_sha256 TEXT, cache_write_1h INTEGER, seen_cache_write_1h INTEGER, counted_usd REAL, work TEXT NOT NULL DEFAULT '', work_why TEXT NOT NULL DEFAULT '', engine_ms REAL NOT NULL DEFAULT 0, kv_bytes INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "request" VALUES(1,1700000000.0,'1121-k3f9/lint',1,'normal','claude-opus-4-8','anthropic','opus-4',0,'work','anthropic',1,'s-1','21600:1',1500.0,20000,64000,0,0,1.7,'served',200,1000,50,4000,300,0,0.02,2500.0,6500.0,0,'closed','',6000,300,4000,0,NULL,NULL,NULL,NULL,'','506c29f701ecce7bf59f166759202f17',NULL,NULL,0,NULL,NULL,'','',0.0,0);
INSERT INTO "request" VALUES(2,1700000000.0,'1121-k3f9/lint',1,'normal','claude-opus-4-8','anthropic','opus-4',0,'work','anthropic',1,'s-1','21600:1',1500.0,20000,64000,0,0,1.7,'refused',429,0,0,0,0,0,0.0,NULL,6500.0,0,'closed','',6000,300,4000,0,NULL,NULL,NULL,NULL,'','506c29f701ecce7bf59f166759202f17',NULL,NULL,0,NULL,NULL,'','',0.0,0);
INSERT INTO "request" VALUES(3,1700000000.0,'1121-k3f9/lint',1,'normal','claude-opus-4-8','anthropic','opus-4',0,'work','anthropic',2,'s-1','21600:1',1500.0,20000,64000,0,0,1.7,'cut',200,20000,64000,0,0,1,1.7,2500.0,6500.0,1,'half-open','usage missing,our fault',6000,300,4000,0,NULL,NULL,NULL,NULL,'','506c29f701ecce7bf59f166759202f17',NULL,NULL,0,NULL,NULL,'','',0.0,0);
INSERT INTO "request" VALUES(4,1700000000.0,'1121-k3f9/night',2,'batch','gemini-3-pro\ud800','gemini','gemini-3-pro',1,'work','anthropic',1,'s-1','21600:1',1500.0,20000,64000,0,0,1.7,'served',200,1000,50,4000,300,0,NULL,2500.0,6500.0,0,'closed','',6000,300,4000,0,NULL,NULL,NULL,NULL,'','506c29f701ecce7bf59f166759202f17',NULL,NULL,0,NULL,NULL,'','',0.0,0);
INSERT INTO "request" VALUES(5,1700000000.0,'1121-k3f9/left',1,'normal','claude-opus-4-8','anthropic','opus-4',0,'work','anthropic',1,'s-1','21600:1',1500.0,20000,64000,0,0,NULL,'client gone',NULL,10,7,0,0,1,0.02,2500.0,6500.0,0,'closed','',6000,300,4000,0,NULL,NULL,NULL,NULL,'','506c29f701ecce7bf59f166759202f17',NULL,NULL,0,NULL,NULL,'','',0.0,0);
INSERT INTO "request" VALUES(6,1700000005.0,'1121-k3f9/lint',1,'normal','claude-opus-4-8','anthropic','opus-4',0,'work','anthropic',1,'s-1','21600:1',1500.0,20000,64000,0,0,1.7,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,0,'','',6000,300,4000,0,1000,420,9000,0,'','506c29f701ecce7bf59f166759202f17',NULL,NULL,NULL,0,NULL,'','',0.0,0);
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
INSERT INTO "turned_away" VALUES(1700000000.0,'1121-k3f9/lint',1,'anthropic','opus-4',0,429,'the hold budget is over',240000.0);
CREATE INDEX request_at ON request (at);
CREATE INDEX request_agent ON request (agent, at);
CREATE INDEX request_open ON request (id) WHERE end IS NULL;
CREATE INDEX turned_away_at ON turned_away (at);
CREATE INDEX turned_away_agent ON turned_away (agent, at);
CREATE INDEX journal_at ON journal (at);
CREATE INDEX recording_run ON recording (run, endpoint, body_sha256);
CREATE INDEX recording_at ON recording (at);
COMMIT;
PRAGMA user_version=6;
