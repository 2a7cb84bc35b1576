-- Schema 7: what brings results home: trains of merges, candidates for one task, what a person decided, pull requests.

CREATE TABLE train (
    id       TEXT PRIMARY KEY,
    project  TEXT NOT NULL,
    number   INTEGER NOT NULL,                      -- the newest has the highest
    branch   TEXT NOT NULL,                         -- short name of the person's branch that it is to move
    base     TEXT NOT NULL,                         -- commit on which that stands
    commands TEXT NOT NULL,                         -- JSON list: its gates
    width    INTEGER NOT NULL,                      -- gates that run side by side
    repairs  INTEGER NOT NULL,                      -- of each result
    orders   TEXT NOT NULL,                         -- JSON of core.landing_orders: how all of it is done
    state    TEXT NOT NULL,                         -- core.landing.TrainState
    restages INTEGER NOT NULL DEFAULT 0,            -- how often somebody else had moved the branch
    tip      TEXT NOT NULL DEFAULT '',              -- commit to which the branch is to move, or has moved
    reason   TEXT NOT NULL DEFAULT '',
    by_hand  TEXT NOT NULL DEFAULT '',              -- command that does what could not be done here
    began    REAL NOT NULL,                         -- moments are seconds since 1970
    changed  REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX train_open ON train (project, branch) WHERE state IN ('running', 'moving');
CREATE INDEX train_newest ON train (project, number);

CREATE TABLE train_entry (
    train      TEXT NOT NULL REFERENCES train (id),
    position   INTEGER NOT NULL,
    task       TEXT NOT NULL,                       -- whose result it is
    epoch      INTEGER NOT NULL,
    tip        TEXT NOT NULL,                       -- commit of the result
    title      TEXT NOT NULL,
    needs      TEXT NOT NULL,                       -- JSON list: tasks of the train that it comes after
    trusted    INTEGER NOT NULL,                    -- 1: a person accepted it
    repairable INTEGER NOT NULL,                    -- 1: its agent reads prompts
    state      TEXT NOT NULL,                       -- core.landing.EntryState
    onto       TEXT NOT NULL,                       -- commit that it was put on, or tried
    staged     TEXT NOT NULL,                       -- commit that has it and all before it
    gates      TEXT NOT NULL,                       -- JSON list of numbers
    repairs    INTEGER NOT NULL,                    -- how often its agent was asked to mend it
    repair     TEXT NOT NULL,                       -- the task that mends it
    reason     TEXT NOT NULL,                       -- why it was left out
    files      TEXT NOT NULL,                       -- JSON list of those that conflict
    PRIMARY KEY (train, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX train_entry_task ON train_entry (task);

CREATE TABLE train_gate (
    train    TEXT NOT NULL REFERENCES train (id),
    number   INTEGER NOT NULL,
    tree     TEXT NOT NULL,                         -- what its verdict is about
    revision TEXT NOT NULL,                         -- commit at which it runs
    command  TEXT NOT NULL,
    restored INTEGER NOT NULL,                      -- 1: with what the result changed in its own gate as it was before
    state    TEXT NOT NULL,                         -- core.landing.GateState
    task     TEXT NOT NULL,                         -- the task that runs it
    why      TEXT NOT NULL,
    PRIMARY KEY (train, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE verdict (
    task     TEXT PRIMARY KEY REFERENCES task (id),
    verdict  TEXT NOT NULL,                         -- core.reviews.Verdict
    tip      TEXT NOT NULL,                         -- commit of the result that was looked at
    why      TEXT NOT NULL DEFAULT '',
    ref      TEXT NOT NULL DEFAULT '',              -- what keeps a rejected one
    decided  REAL NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE review_comment (
    number  INTEGER PRIMARY KEY,
    task    TEXT NOT NULL REFERENCES task (id),
    tip     TEXT NOT NULL,                          -- commit of the result that it was written to
    path    TEXT NOT NULL,
    first   INTEGER NOT NULL,                       -- lines of the file at that commit
    last    INTEGER NOT NULL,
    quoted  TEXT NOT NULL,                          -- those lines
    text    TEXT NOT NULL,
    written REAL NOT NULL,
    sent    REAL,                                   -- NULL: its agent has not got it
    sent_to TEXT NOT NULL DEFAULT '',               -- the task that got it
    delivery INTEGER                                -- the text that holds it, of one whose agent was at work
) STRICT;
CREATE INDEX review_comment_task ON review_comment (task, number);

CREATE TABLE push_consent (
    project TEXT NOT NULL,
    remote  TEXT NOT NULL,                          -- URL without user and password, as git would push to it
    given   REAL NOT NULL,
    PRIMARY KEY (project, remote)
) STRICT, WITHOUT ROWID;

CREATE TABLE pull_request (
    id      INTEGER PRIMARY KEY,
    task    TEXT NOT NULL,                          -- the newest whose work it holds; it may be archived
    project TEXT NOT NULL,
    remote  TEXT NOT NULL,                          -- URL without user and password
    branch  TEXT NOT NULL,
    base    TEXT NOT NULL,
    intent  TEXT NOT NULL DEFAULT '',               -- commit that was last about to be pushed
    pushed  TEXT NOT NULL DEFAULT '',               -- commit at which our last push left the branch
    tool    TEXT NOT NULL DEFAULT 'link',           -- core.pull_requests.Tool
    number  INTEGER NOT NULL DEFAULT 0,
    link    TEXT NOT NULL DEFAULT '',
    state   TEXT NOT NULL DEFAULT '',               -- core.pull_requests.State
    draft   INTEGER NOT NULL DEFAULT 1,
    rounds  INTEGER NOT NULL DEFAULT 0,             -- how often its agent was given what came back
    changed REAL NOT NULL,
    UNIQUE (remote, branch)
) STRICT;
CREATE INDEX pull_request_project ON pull_request (project, id);

CREATE TABLE pull_task (
    task TEXT NOT NULL,                             -- one whose work it holds or held
    pull INTEGER NOT NULL REFERENCES pull_request (id),
    PRIMARY KEY (task, pull)
) STRICT, WITHOUT ROWID;

CREATE TABLE pull_remark (
    pull INTEGER NOT NULL REFERENCES pull_request (id),
    key  TEXT NOT NULL,                             -- what the host calls it
    task TEXT NOT NULL,                             -- whose agent got it
    sent REAL NOT NULL,
    delivery INTEGER,                               -- the text that holds it, of one whose agent was at work
    PRIMARY KEY (pull, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX pull_remark_delivery ON pull_remark (delivery) WHERE delivery IS NOT NULL;

CREATE TABLE choice (
    task    TEXT PRIMARY KEY REFERENCES task (id),  -- the group of candidates
    winner  TEXT NOT NULL REFERENCES task (id),
    epoch   INTEGER NOT NULL,                       -- the attempt of the winner
    tip     TEXT NOT NULL DEFAULT '',               -- commit that holds what it left
    decider TEXT NOT NULL,                          -- core.candidates.Decider
    why     TEXT NOT NULL DEFAULT '',
    ranking TEXT NOT NULL,                          -- JSON of core.candidate_ranking, as it was then
    decided REAL NOT NULL
) STRICT, WITHOUT ROWID;
