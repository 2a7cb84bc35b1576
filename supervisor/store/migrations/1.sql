-- Schema 1. Times are wall-clock seconds since 1970 (UTC), for people; no decision is made by comparing them.

CREATE TABLE project (
    id         TEXT PRIMARY KEY,            -- 12 hex of the real path of the git common directory
    root       TEXT NOT NULL,
    common_dir TEXT NOT NULL,
    created    REAL NOT NULL
) STRICT;

CREATE TABLE run (
    id       TEXT PRIMARY KEY,              -- MMDD-xxxx
    key      TEXT NOT NULL UNIQUE,          -- idempotency: the same key twice is one run
    project  TEXT NOT NULL REFERENCES project (id),
    title    TEXT NOT NULL,
    base     TEXT NOT NULL,                 -- the revision as typed
    base_oid TEXT NOT NULL,                 -- what it meant at submission
    env      TEXT NOT NULL,                 -- JSON object: the submitting shell's allow-listed variables
    created  REAL NOT NULL
) STRICT;

CREATE TABLE task (
    ord        INTEGER PRIMARY KEY,         -- submission order over all runs
    id         TEXT NOT NULL UNIQUE,        -- <run>/<slug>
    run        TEXT NOT NULL REFERENCES run (id),
    project    TEXT NOT NULL REFERENCES project (id),
    name       TEXT NOT NULL,               -- the plan's id
    title      TEXT NOT NULL,
    spec       TEXT NOT NULL,               -- JSON of core.spec.TaskSpec
    state      TEXT NOT NULL,               -- core.states.TaskState
    reason     TEXT NOT NULL DEFAULT '',    -- of the last change; the cause of the next attempt when there was one before
    epoch      INTEGER NOT NULL DEFAULT 0,  -- newest attempt; 0 = none yet
    failures   INTEGER NOT NULL DEFAULT 0,
    losses     INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,     -- end of the backoff
    changed    REAL NOT NULL
) STRICT;
CREATE INDEX task_run ON task (run, ord);
CREATE INDEX task_name ON task (name, ord);
CREATE INDEX task_open ON task (state) WHERE state IN ('waiting', 'ready', 'running', 'paused', 'parked');

CREATE TABLE dependency (
    task  TEXT NOT NULL REFERENCES task (id),
    needs TEXT NOT NULL REFERENCES task (id),
    PRIMARY KEY (task, needs)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependency_needs ON dependency (needs);

CREATE TABLE attempt (
    task       TEXT NOT NULL REFERENCES task (id),
    epoch      INTEGER NOT NULL,
    state      TEXT NOT NULL,               -- core.states.AttemptState
    cause      TEXT NOT NULL DEFAULT '',    -- why this re-run; empty for the first
    stop_why   TEXT NOT NULL DEFAULT '',    -- why we are stopping it; committed before the first signal
    created    REAL NOT NULL,
    started    REAL,
    ended      REAL,
    end        TEXT,                        -- core.states.End, set exactly once
    judged     TEXT,                        -- the end it will have, once its work is secured
    end_cause  TEXT NOT NULL DEFAULT '',
    worktree   TEXT,
    admin_dir  TEXT,
    branch     TEXT,
    base_oid   TEXT,
    session_id TEXT,                        -- tmux $id and %id: hints, the tags are the truth
    pane_id    TEXT,
    server_pid INTEGER,                     -- tells a closed session from a dead server
    rescue_oid TEXT,
    result     TEXT,                        -- result.json
    removed    REAL,                        -- when `clean` removed the worktree
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempt_open ON attempt (state) WHERE state <> 'released';
CREATE INDEX attempt_worktree ON attempt (task) WHERE worktree IS NOT NULL AND removed IS NULL;

CREATE TABLE journal (
    seq   INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    task  TEXT,
    epoch INTEGER,
    event TEXT NOT NULL,
    data  TEXT NOT NULL DEFAULT '{}'        -- JSON object
) STRICT;
CREATE INDEX journal_task ON journal (task, seq);
