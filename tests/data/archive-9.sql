BEGIN TRANSACTION;
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
    removed    REAL, snapshot TEXT, layers TEXT, tier INTEGER, port INTEGER, paused TEXT, account TEXT,                        -- when `clean` removed the worktree
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
INSERT INTO "attempt" VALUES('0729-arch/also',1,'released','','',1690000000.25,1690000000.25,1690000000.25,'done','done','',NULL,NULL,'nightcrew/0729-arch/also/work',NULL,NULL,NULL,NULL,NULL,'{"schema": 1, "end": "done"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0729-arch/done',1,'released','','',1690000000.25,1690000000.25,1690000000.25,'done','done','',NULL,NULL,'nightcrew/0729-arch/done/work',NULL,NULL,NULL,NULL,NULL,'{"schema": 1, "end": "done"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
CREATE TABLE conversation (
    task    TEXT NOT NULL REFERENCES task (id),
    epoch   INTEGER NOT NULL,
    session TEXT NOT NULL,                  -- its id, as the agent calls it; empty until the agent has told
    origin  TEXT NOT NULL,                  -- JSON of core.conversations.Origin; empty: it began anew
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
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
CREATE TABLE dependency (
    task  TEXT NOT NULL REFERENCES task (id),
    needs TEXT NOT NULL REFERENCES task (id),
    PRIMARY KEY (task, needs)
) STRICT, WITHOUT ROWID;
CREATE TABLE journal (
    seq   INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    task  TEXT,
    epoch INTEGER,
    event TEXT NOT NULL,
    data  TEXT NOT NULL DEFAULT '{}'        -- JSON object
) STRICT;
INSERT INTO "journal" VALUES(2,1690000000.25,'0729-arch/done',NULL,'ready','{}');
INSERT INTO "journal" VALUES(3,1690000000.25,'0729-arch/also',NULL,'ready','{}');
INSERT INTO "journal" VALUES(4,1690000000.25,'0729-arch/done',1,'start','{"spec_sha256": "f85c0173e740b8e83a21d392264690f8f62eb22bcfd2ec7a568dc66d13f9e548"}');
INSERT INTO "journal" VALUES(5,1690000000.25,'0729-arch/done',1,'tree gone','{"end": "done", "cause": ""}');
INSERT INTO "journal" VALUES(6,1690000000.25,'0729-arch/done',1,'end done','{"cause": "", "task": "done"}');
INSERT INTO "journal" VALUES(7,1690000000.25,'0729-arch/also',1,'start','{"spec_sha256": "f4b12463c63f14d5f028bbb06980b554873474f68fa87c50c54aa7134d146292"}');
INSERT INTO "journal" VALUES(8,1690000000.25,'0729-arch/also',1,'tree gone','{"end": "done", "cause": ""}');
INSERT INTO "journal" VALUES(9,1690000000.25,'0729-arch/also',1,'end done','{"cause": "", "task": "done"}');
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
CREATE TABLE leaving (
    run TEXT PRIMARY KEY REFERENCES run (id),   -- a run whose rows are on their way to archive.db; nothing of it changes any more
    at  REAL NOT NULL
) STRICT, WITHOUT ROWID;
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
, words TEXT) STRICT, WITHOUT ROWID;
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
CREATE TABLE project (
    id         TEXT PRIMARY KEY,            -- 12 hex of the real path of the git common directory
    root       TEXT NOT NULL,
    common_dir TEXT NOT NULL,
    created    REAL NOT NULL
) STRICT;
INSERT INTO "project" VALUES('0123456789ab','/repo','/repo/.git',1690000000.25);
CREATE TABLE pull_remark (
    pull INTEGER NOT NULL REFERENCES pull_request (id),
    key  TEXT NOT NULL,                             -- what the host calls it
    task TEXT NOT NULL,                             -- whose agent got it
    sent REAL NOT NULL,
    delivery INTEGER,                               -- the text that holds it, of one whose agent was at work
    PRIMARY KEY (pull, key)
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
CREATE TABLE pull_task (
    task TEXT NOT NULL,                             -- one whose work it holds or held
    pull INTEGER NOT NULL REFERENCES pull_request (id),
    PRIMARY KEY (task, pull)
) STRICT, WITHOUT ROWID;
CREATE TABLE push_consent (
    project TEXT NOT NULL,
    remote  TEXT NOT NULL,                          -- URL without user and password, as git would push to it
    given   REAL NOT NULL,
    PRIMARY KEY (project, remote)
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
CREATE TABLE run (
    id       TEXT PRIMARY KEY,              -- MMDD-xxxx
    key      TEXT NOT NULL UNIQUE,          -- idempotency: the same key twice is one run
    project  TEXT NOT NULL REFERENCES project (id),
    title    TEXT NOT NULL,
    base     TEXT NOT NULL,                 -- the revision as typed
    base_oid TEXT NOT NULL,                 -- what it meant at submission
    env      TEXT NOT NULL,                 -- JSON object: the submitting shell's allow-listed variables
    created  REAL NOT NULL
, night TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO "run" VALUES('0729-arch','0729-arch','0123456789ab','a run','main','c0ffee','{"PATH": "/bin"}',1690000000.25,'');
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
    not_before REAL NOT NULL DEFAULT 0,     -- end of the backoff
    changed    REAL NOT NULL
, gates INTEGER NOT NULL DEFAULT 0, restarts TEXT NOT NULL DEFAULT '[]') STRICT;
INSERT INTO "task" VALUES(1,'0729-arch/done','0729-arch','0123456789ab','done','done','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "done", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "done", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','done','done',1,0,0.0,1690000000.25,0,'[]');
INSERT INTO "task" VALUES(2,'0729-arch/also','0729-arch','0123456789ab','also','also','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "also", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "also", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','done','done',1,0,0.0,1690000000.25,0,'[]');
CREATE TABLE token_run (
    run    TEXT PRIMARY KEY REFERENCES run (id),
    token  TEXT NOT NULL,                           -- it may be gone
    user   TEXT NOT NULL,
    digest TEXT NOT NULL,                           -- SHA-256 of the request: the same key with another one is refused
    first  INTEGER NOT NULL                         -- `ord` of its first task
) STRICT;
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
CREATE INDEX task_run ON task (run, ord);
CREATE INDEX task_name ON task (name, ord);
CREATE INDEX task_open ON task (state) WHERE state IN ('waiting', 'ready', 'running', 'paused', 'parked');
CREATE INDEX dependency_needs ON dependency (needs);
CREATE INDEX attempt_open ON attempt (state) WHERE state <> 'released';
CREATE INDEX attempt_worktree ON attempt (task) WHERE worktree IS NOT NULL AND removed IS NULL;
CREATE INDEX journal_task ON journal (task, seq);
CREATE INDEX snapshot_name ON snapshot (project, name);
CREATE INDEX attempt_snapshot ON attempt (snapshot) WHERE snapshot IS NOT NULL AND removed IS NULL;
CREATE INDEX delivery_task ON delivery (task);
CREATE INDEX delivery_open ON delivery (id) WHERE state IN ('pending', 'typing');
CREATE INDEX conversation_session ON conversation (session) WHERE session <> '';
CREATE INDEX run_night ON run (night) WHERE night <> '';
CREATE INDEX lease_held ON lease (project) WHERE ended IS NULL;
CREATE INDEX lease_task ON lease (task);
CREATE INDEX wait_open ON wait (project) WHERE ended IS NULL;
CREATE INDEX wait_task ON wait (task);
CREATE INDEX mail_open ON mail (state, recipient) WHERE state IN ('accepted', 'new', 'given');
CREATE INDEX mail_recipient ON mail (recipient, id);
CREATE INDEX mail_thread ON mail (thread);
CREATE INDEX mail_sender ON mail (sender, sent);
CREATE UNIQUE INDEX mail_key ON mail (sender, key) WHERE key <> '';
CREATE INDEX mail_answers ON mail (in_reply_to) WHERE in_reply_to <> '';
CREATE UNIQUE INDEX train_open ON train (project, branch) WHERE state IN ('running', 'moving');
CREATE INDEX train_newest ON train (project, number);
CREATE INDEX train_entry_task ON train_entry (task);
CREATE INDEX review_comment_task ON review_comment (task, number);
CREATE INDEX pull_request_project ON pull_request (project, id);
CREATE INDEX pull_remark_delivery ON pull_remark (delivery) WHERE delivery IS NOT NULL;
CREATE INDEX access_token_held ON access_token (id) WHERE revoked IS NULL;
CREATE INDEX token_run_user ON token_run (user, first);
COMMIT;
PRAGMA user_version=9;
