-- Schema 5: what agents take, where their time went, and pauses that are not only a person's.

CREATE TABLE need (
    kind        TEXT PRIMARY KEY,           -- a kind of agent; the rest is its core.capacity.Need
    cores       REAL NOT NULL,
    memory      INTEGER NOT NULL,
    tpm         REAL NOT NULL,
    wall_s      REAL NOT NULL,
    cores_from  INTEGER NOT NULL,
    memory_from INTEGER NOT NULL,
    tpm_from    INTEGER NOT NULL,
    usd         REAL NOT NULL,
    usd_from    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE attempt ADD COLUMN account TEXT;    -- JSON of where its time went and what it took; NULL until it was measured

ALTER TABLE task ADD COLUMN gates INTEGER NOT NULL DEFAULT 0;       -- core.retry.Tally, as failures are
ALTER TABLE task ADD COLUMN restarts TEXT NOT NULL DEFAULT '[]';    -- JSON list of wall-clock seconds
ALTER TABLE task DROP COLUMN losses;
ALTER TABLE attempt RENAME COLUMN suspended TO paused;

ALTER TABLE run ADD COLUMN night TEXT NOT NULL DEFAULT '';  -- the run whose terms hold for it: its own id, or that of the night that added it
CREATE INDEX run_night ON run (night) WHERE night <> '';

CREATE TABLE night (
    run       TEXT PRIMARY KEY REFERENCES run (id),
    until     REAL NOT NULL,            -- core.night.NightTerms; moments are seconds since 1970, 0: none
    grace_s   REAL NOT NULL,
    cost_max  REAL NOT NULL,
    parallel  INTEGER NOT NULL,
    on_cap    TEXT NOT NULL,
    state     TEXT NOT NULL,            -- core.night.NightState
    began     REAL NOT NULL,
    ended     REAL,
    why       TEXT NOT NULL,            -- why nothing starts any more; empty while it is open
    plan      TEXT NOT NULL,            -- path and SHA-256 of the plan, for people
    plan_hash TEXT NOT NULL,
    timer     TEXT NOT NULL             -- the timer that asked for it; empty: a person did
) STRICT;

CREATE TABLE leaving (
    run TEXT PRIMARY KEY REFERENCES run (id),   -- a run whose rows are on their way to archive.db; nothing of it changes any more
    at  REAL NOT NULL
) STRICT, WITHOUT ROWID;
