-- Schema 8: who may ask over HTTP, and what was handed over with which token.

CREATE TABLE access_token (
    id       TEXT PRIMARY KEY,                      -- stands in the token, and in lists
    digest   TEXT NOT NULL,                         -- SHA-256 of its secret half, hexadecimal; the secret is nowhere
    kind     TEXT NOT NULL,                         -- core.access.Kind
    user     TEXT NOT NULL,                         -- the submitter of its tasks in the fair share
    name     TEXT NOT NULL,                         -- for people
    scopes   TEXT NOT NULL,                         -- JSON list of core.access.Scope
    projects TEXT NOT NULL,                         -- JSON list of the repositories that it reaches; an empty one: all
    others   INTEGER NOT NULL,                      -- 1: it reaches what others submitted, too
    confined INTEGER NOT NULL,                      -- 1: its tasks run in a sandbox or not at all
    rate     REAL NOT NULL,                         -- requests a second, over time
    quota    INTEGER NOT NULL,                      -- tasks in 24 hours, over time; 0: as many as it likes
    spent    REAL NOT NULL DEFAULT 0,               -- tasks of the quota that were used up at `spent_at`
    spent_at REAL NOT NULL,
    created  REAL NOT NULL,
    expires  REAL,                                  -- NULL: never
    used     REAL,                                  -- about when it was last used; NULL: never
    revoked  REAL                                   -- NULL while it holds
) STRICT, WITHOUT ROWID;
CREATE INDEX access_token_held ON access_token (id) WHERE revoked IS NULL;

CREATE TABLE token_run (
    run    TEXT PRIMARY KEY REFERENCES run (id),
    token  TEXT NOT NULL,                           -- it may be gone
    user   TEXT NOT NULL,
    digest TEXT NOT NULL,                           -- SHA-256 of the request: the same key with another one is refused
    first  INTEGER NOT NULL                         -- `ord` of its first task
) STRICT;
CREATE INDEX token_run_user ON token_run (user, first);
