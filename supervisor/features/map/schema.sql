-- The schemas of a map's file, each of which leads on from the one before. What is released is never edited.

-- Schema 1: a map: one row says what it is and how it stands.
CREATE TABLE map (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    title      TEXT    NOT NULL DEFAULT '',
    what       TEXT    NOT NULL DEFAULT '{}',        -- JSON: what is done with an item
    source     TEXT    NOT NULL DEFAULT '{}',        -- JSON: where the items come from
    retries    INTEGER NOT NULL DEFAULT 0,
    agents     INTEGER NOT NULL DEFAULT 1,
    out        TEXT    NOT NULL DEFAULT '',          -- where the output is written
    run        TEXT    NOT NULL DEFAULT '',          -- the run of its newest workers
    state      TEXT    NOT NULL DEFAULT 'open',      -- open, running, ended
    why        TEXT    NOT NULL DEFAULT '',          -- why it ended before every item did, or could not write its output
    began      REAL    NOT NULL DEFAULT 0,           -- wall clock
    ended      REAL    NOT NULL DEFAULT 0,
    shard      INTEGER NOT NULL DEFAULT 0,           -- number of the newest lease
    item_s     REAL    NOT NULL DEFAULT 0,           -- seconds that an item takes a worker, by its newest shards
    undone     INTEGER NOT NULL DEFAULT 0            -- shards after which the worktree had to be cleaned
) STRICT;

CREATE TABLE item (
    position   INTEGER PRIMARY KEY,
    name       BLOB    NOT NULL,                     -- a path, a line, or a line of JSON: the bytes as they are
    key        TEXT    NOT NULL,                     -- of its content
    nth        INTEGER NOT NULL DEFAULT 0,           -- how many with the same name and key come before it
    size       INTEGER NOT NULL DEFAULT 0,           -- bytes
    state      TEXT    NOT NULL DEFAULT 'waiting',   -- waiting (also while it is leased), done, failed
    tries      INTEGER NOT NULL DEFAULT 0,
    deaths     INTEGER NOT NULL DEFAULT 0,           -- workers that died while they were at it
    ms         INTEGER NOT NULL DEFAULT 0,
    text       TEXT                                  -- the result as JSON, or why there is none
) STRICT;

CREATE INDEX item_by_state ON item (state, position);

-- The shards that attempts have now.
CREATE TABLE lease (
    task       TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    shard      INTEGER NOT NULL,
    positions  TEXT    NOT NULL,                     -- JSON
    PRIMARY KEY (task, epoch)
) STRICT;

-- What a worker wants to find again in its next attempt.
CREATE TABLE kept (
    task       TEXT    PRIMARY KEY,
    data       TEXT    NOT NULL
) STRICT;
