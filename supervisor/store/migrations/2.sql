-- Schema 2: snapshots, and what the environment of an attempt is made of.

CREATE TABLE snapshot (
    id       TEXT PRIMARY KEY,              -- core.snapshots.snapshot_id
    project  TEXT NOT NULL,                 -- may have no row of its own yet: nothing was run there
    name     TEXT NOT NULL,
    spec     TEXT NOT NULL,                 -- JSON of core.snapshots.SnapshotSpec
    state    TEXT NOT NULL,                 -- core.snapshots.SnapshotState
    reason   TEXT NOT NULL DEFAULT '',      -- of the last change of its state
    epoch    INTEGER NOT NULL DEFAULT 1,    -- number of the build
    run      TEXT NOT NULL DEFAULT '',      -- the run that it goes with; empty: it stays
    base_oid TEXT NOT NULL,
    digests  TEXT NOT NULL,                 -- JSON object: lock file to digest
    layers   TEXT NOT NULL DEFAULT '',      -- JSON of the backend that made it
    created  REAL NOT NULL,
    used     REAL NOT NULL,
    setup_s  REAL NOT NULL DEFAULT 0,
    freeze_s REAL NOT NULL DEFAULT 0,
    disk     INTEGER NOT NULL DEFAULT 0     -- bytes
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshot_name ON snapshot (project, name);

ALTER TABLE attempt ADD COLUMN snapshot TEXT;       -- snapshot that its environment was made from
ALTER TABLE attempt ADD COLUMN layers TEXT;         -- JSON of the backend: enough to open the environment when no mount is left
ALTER TABLE attempt ADD COLUMN tier INTEGER;        -- isolation tier that it ran in
ALTER TABLE attempt ADD COLUMN port INTEGER;        -- first port of its block
ALTER TABLE attempt ADD COLUMN suspended TEXT;      -- JSON of what a suspend found, until it has been undone; NULL: it goes on
CREATE INDEX attempt_snapshot ON attempt (snapshot) WHERE snapshot IS NOT NULL AND removed IS NULL;
