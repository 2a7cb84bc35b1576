-- The schemas of `memory.db`, each of which leads on from the one before. What is released is never edited.

-- Schema 1: what became of the files of a project's memory.

CREATE TABLE content (
    version TEXT PRIMARY KEY,                       -- first 16 hex digits of the sha256 of `data`
    data    BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE change (
    number  INTEGER PRIMARY KEY,
    path    TEXT NOT NULL,
    at      REAL NOT NULL,                          -- seconds since 1970
    author  TEXT NOT NULL,                          -- a task, `person`, or `unknown`: it was found on disk
    epoch   INTEGER,                                -- the attempt of the task
    action  TEXT NOT NULL,                          -- memory.versions.Action
    version TEXT NOT NULL,                          -- empty: nothing is there any more
    before  TEXT NOT NULL,                          -- empty: nothing was there
    size    INTEGER NOT NULL,
    state   TEXT NOT NULL                           -- pending, done, dropped
) STRICT;
CREATE INDEX change_path ON change (path, number);
CREATE INDEX change_pending ON change (number) WHERE state = 'pending';

-- What each file was when it was looked at last. The four numbers are 0 when it could have changed within the same tick.
CREATE TABLE known (
    path    TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    inode   INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    mtime   INTEGER NOT NULL,                       -- ns
    ctime   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;


-- Who read what.
CREATE TABLE reading (
    path  TEXT NOT NULL,
    task  TEXT NOT NULL,                            -- who: a task, or `person`
    given INTEGER NOT NULL,                         -- how often it stood before its prompt
    read  INTEGER NOT NULL,                         -- how often it was asked for
    first REAL NOT NULL,                            -- moments are seconds since 1970
    last  REAL NOT NULL,
    PRIMARY KEY (path, task)
) STRICT, WITHOUT ROWID;
CREATE INDEX reading_task ON reading (task);

-- The beginning that all agents of a project are given.
CREATE TABLE prefix (
    digest      TEXT PRIMARY KEY,                   -- first 16 hex digits of the sha256 of its text
    bytes       INTEGER NOT NULL,
    first       REAL NOT NULL,
    last        REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- The attempts that were given one. Token counts are NULL until it has ended, and when nobody counted them.
CREATE TABLE briefed (
    task        TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    digest      TEXT NOT NULL REFERENCES prefix (digest),
    at          REAL NOT NULL,
    ended       INTEGER NOT NULL DEFAULT 0,
    input       INTEGER,                            -- not from the cache, with what was written to it
    cache_read  INTEGER,
    first_input INTEGER,                            -- of its first request alone: later ones begin as their own conversation
    first_read  INTEGER,
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX briefed_digest ON briefed (digest);
CREATE INDEX briefed_open ON briefed (task) WHERE ended = 0;
