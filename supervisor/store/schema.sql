-- The schemas of the ledger, each of which leads on from the one before. What is released is never edited.

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

-- Schema 3: texts that people send to agents.

CREATE TABLE delivery (
    id      INTEGER PRIMARY KEY,
    task    TEXT NOT NULL REFERENCES task (id),
    epoch   INTEGER,                        -- the attempt that it was typed into
    state   TEXT NOT NULL,                  -- core.deliveries.DeliveryState
    text    TEXT NOT NULL,                  -- empty once it was typed or dropped
    size    INTEGER NOT NULL,               -- bytes of the text
    digest  TEXT NOT NULL,                  -- SHA-256 of the text, hex
    reason  TEXT NOT NULL,                  -- why it waits, or why nothing confirms it
    created REAL NOT NULL,
    changed REAL NOT NULL
) STRICT;
CREATE INDEX delivery_task ON delivery (task);
CREATE INDEX delivery_open ON delivery (id) WHERE state IN ('pending', 'typing');

-- Schema 4: the conversations of agents.

CREATE TABLE conversation (
    task    TEXT NOT NULL REFERENCES task (id),
    epoch   INTEGER NOT NULL,
    session TEXT NOT NULL,                  -- its id, as the agent calls it; empty until the agent has told
    origin  TEXT NOT NULL,                  -- JSON of core.conversations.Origin; empty: it began anew
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversation_session ON conversation (session) WHERE session <> '';

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

-- Schema 6: what agents hold for themselves, what they wait for, and what they write to each other.

CREATE TABLE lease (
    fence    INTEGER PRIMARY KEY,                   -- greater than that of every lease that is held
    project  TEXT NOT NULL,
    glob     TEXT NOT NULL,
    mode     TEXT NOT NULL,                         -- shared or exclusive
    task     TEXT NOT NULL REFERENCES task (id),
    epoch    INTEGER NOT NULL,
    acquired REAL NOT NULL,                         -- moments are seconds since 1970
    expires  REAL NOT NULL,
    renews   INTEGER NOT NULL DEFAULT 1,            -- 0: it expires although its attempt lives
    ended    REAL,                                  -- NULL while it is held
    why      TEXT NOT NULL DEFAULT ''               -- why it ended
) STRICT;
CREATE INDEX lease_held ON lease (project) WHERE ended IS NULL;
CREATE INDEX lease_task ON lease (task);

CREATE TABLE wait (
    number  INTEGER PRIMARY KEY,
    project TEXT NOT NULL,
    task    TEXT NOT NULL REFERENCES task (id),
    epoch   INTEGER NOT NULL,
    kind    TEXT NOT NULL,                          -- core.wait_graph.WaitKind
    what    TEXT NOT NULL,                          -- what it waits for, in words
    holders TEXT NOT NULL,                          -- JSON list of who must act first
    any_of  INTEGER NOT NULL DEFAULT 0,             -- 1: one of them is enough
    since   REAL NOT NULL,
    until   REAL NOT NULL,
    ended   REAL,                                   -- NULL while it waits
    why     TEXT NOT NULL DEFAULT ''                -- how it ended
) STRICT;
CREATE INDEX wait_open ON wait (project) WHERE ended IS NULL;
CREATE INDEX wait_task ON wait (task);

CREATE TABLE mail (
    id             TEXT PRIMARY KEY,                -- of core.mail; also the name of its file
    project        TEXT NOT NULL,
    thread         TEXT NOT NULL,                   -- id of its first message
    in_reply_to    TEXT NOT NULL DEFAULT '',
    depth          INTEGER NOT NULL DEFAULT 0,      -- replies above it
    sender         TEXT NOT NULL,                   -- a task, or `person`
    recipient      TEXT NOT NULL,
    type           TEXT NOT NULL,                   -- info, request, reply or handoff
    priority       TEXT NOT NULL,
    subject        TEXT NOT NULL,
    needs_reply_by REAL,
    bytes          INTEGER NOT NULL,
    tokens         INTEGER NOT NULL,                -- estimated, of what the recipient was given so far
    sent           REAL NOT NULL,
    state          TEXT NOT NULL,                   -- core.mail.MailState
    epoch          INTEGER,                         -- the attempt of the recipient that it was given to
    changed        REAL NOT NULL,
    why            TEXT NOT NULL DEFAULT '',
    key            TEXT NOT NULL DEFAULT '',        -- the same of one sender is one message
    delivery       INTEGER                          -- id of the text for the recipient's next turn
) STRICT, WITHOUT ROWID;
CREATE INDEX mail_open ON mail (state, recipient) WHERE state IN ('accepted', 'new', 'given');
CREATE INDEX mail_recipient ON mail (recipient, id);
CREATE INDEX mail_thread ON mail (thread);
CREATE INDEX mail_sender ON mail (sender, sent);
CREATE UNIQUE INDEX mail_key ON mail (sender, key) WHERE key <> '';
CREATE INDEX mail_answers ON mail (in_reply_to) WHERE in_reply_to <> '';

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

-- Schema 9: the words of messages. NULL: a release before this one kept them in the message's file alone.

ALTER TABLE mail ADD COLUMN words TEXT;
