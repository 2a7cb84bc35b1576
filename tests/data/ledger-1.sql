BEGIN TRANSACTION;
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
INSERT INTO "attempt" VALUES('0731-k3qz/backoff',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'failed','failed','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/collecting',1,'collecting','','',1700000060.25,1700000060.25,NULL,NULL,'failed','exit code 1',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/done',1,'released','','',1700000060.25,1700000060.25,1700000060.25,'done','done','','/w/done','/d/done','nightcrew/0731-k3qz/done/work','c0ffee','$1','%1',77,'beef','{"schema": 1, "end": "done"}',1700000060.25);
INSERT INTO "attempt" VALUES('0731-k3qz/failed',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'timeout','timeout','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/failed',2,'ended','again','',1700000060.25,1700000060.25,1700000060.25,'failed','failed','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/launching',1,'launching','','',1700000060.25,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/quarantined',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'lost','lost','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/retried',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'cancelled','cancelled','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/running',1,'running','','',1700000060.25,1700000060.25,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/stopping',1,'stopping','','cancelled',1700000060.25,1700000060.25,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-m7wn/lonely',1,'ended','','',1700000060.25,NULL,1700000060.25,'done','done','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE dependency (
    task  TEXT NOT NULL REFERENCES task (id),
    needs TEXT NOT NULL REFERENCES task (id),
    PRIMARY KEY (task, needs)
) STRICT, WITHOUT ROWID;
INSERT INTO "dependency" VALUES('0731-k3qz/cancelled','0731-k3qz/done');
INSERT INTO "dependency" VALUES('0731-k3qz/retried','0731-k3qz/done');
INSERT INTO "dependency" VALUES('0731-k3qz/waiting','0731-k3qz/done');
INSERT INTO "dependency" VALUES('0731-k3qz/skipped','0731-k3qz/failed');
INSERT INTO "dependency" VALUES('0731-k3qz/waiting','0731-k3qz/running');
CREATE TABLE journal (
    seq   INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    task  TEXT,
    epoch INTEGER,
    event TEXT NOT NULL,
    data  TEXT NOT NULL DEFAULT '{}'        -- JSON object
) STRICT;
INSERT INTO "journal" VALUES(1,1700000000.25,NULL,NULL,'submitted','{"run": "0731-k3qz", "tasks": 13}');
INSERT INTO "journal" VALUES(2,1700000000.25,'0731-k3qz/done',NULL,'ready','{}');
INSERT INTO "journal" VALUES(3,1700000000.25,'0731-k3qz/failed',NULL,'ready','{}');
INSERT INTO "journal" VALUES(4,1700000000.25,'0731-k3qz/quarantined',NULL,'ready','{}');
INSERT INTO "journal" VALUES(5,1700000000.25,'0731-k3qz/backoff',NULL,'ready','{}');
INSERT INTO "journal" VALUES(6,1700000000.25,'0731-k3qz/launching',NULL,'ready','{}');
INSERT INTO "journal" VALUES(7,1700000000.25,'0731-k3qz/running',NULL,'ready','{}');
INSERT INTO "journal" VALUES(8,1700000000.25,'0731-k3qz/stopping',NULL,'ready','{}');
INSERT INTO "journal" VALUES(9,1700000000.25,'0731-k3qz/collecting',NULL,'ready','{}');
INSERT INTO "journal" VALUES(10,1700000000.25,'0731-k3qz/ready',NULL,'ready','{}');
INSERT INTO "journal" VALUES(11,1700000060.25,'0731-k3qz/done',1,'start','{}');
INSERT INTO "journal" VALUES(12,1700000060.25,'0731-k3qz/done',1,'tree gone','{"end": "done", "cause": ""}');
INSERT INTO "journal" VALUES(13,1700000060.25,'0731-k3qz/done',1,'end done','{"cause": "", "task": "done"}');
INSERT INTO "journal" VALUES(14,1700000060.25,'0731-k3qz/failed',1,'start','{}');
INSERT INTO "journal" VALUES(15,1700000060.25,'0731-k3qz/failed',1,'tree gone','{"end": "timeout", "cause": ""}');
INSERT INTO "journal" VALUES(16,1700000060.25,'0731-k3qz/failed',1,'end timeout','{"cause": "", "task": "ready"}');
INSERT INTO "journal" VALUES(17,1700000060.25,'0731-k3qz/failed',2,'start','{"cause": "again"}');
INSERT INTO "journal" VALUES(18,1700000060.25,'0731-k3qz/failed',2,'tree gone','{"end": "failed", "cause": ""}');
INSERT INTO "journal" VALUES(19,1700000060.25,'0731-k3qz/failed',2,'end failed','{"cause": "", "task": "failed"}');
INSERT INTO "journal" VALUES(20,1700000060.25,'0731-k3qz/skipped',NULL,'skipped','{"reason": "it failed"}');
INSERT INTO "journal" VALUES(21,1700000060.25,'0731-k3qz/cancelled',NULL,'ready','{}');
INSERT INTO "journal" VALUES(22,1700000060.25,'0731-k3qz/cancelled',NULL,'cancelled','{"reason": "cancelled"}');
INSERT INTO "journal" VALUES(23,1700000060.25,'0731-k3qz/quarantined',1,'start','{}');
INSERT INTO "journal" VALUES(24,1700000060.25,'0731-k3qz/quarantined',1,'tree gone','{"end": "lost", "cause": ""}');
INSERT INTO "journal" VALUES(25,1700000060.25,'0731-k3qz/quarantined',1,'end lost','{"cause": "", "task": "quarantined"}');
INSERT INTO "journal" VALUES(26,1700000060.25,'0731-k3qz/backoff',1,'start','{}');
INSERT INTO "journal" VALUES(27,1700000060.25,'0731-k3qz/backoff',1,'tree gone','{"end": "failed", "cause": ""}');
INSERT INTO "journal" VALUES(28,1700000060.25,'0731-k3qz/backoff',1,'end failed','{"cause": "", "task": "ready"}');
INSERT INTO "journal" VALUES(29,1700000060.25,'0731-k3qz/launching',1,'start','{}');
INSERT INTO "journal" VALUES(30,1700000060.25,'0731-k3qz/running',1,'start','{}');
INSERT INTO "journal" VALUES(31,1700000060.25,'0731-k3qz/stopping',1,'start','{}');
INSERT INTO "journal" VALUES(32,1700000060.25,'0731-k3qz/collecting',1,'start','{}');
INSERT INTO "journal" VALUES(33,1700000060.25,'0731-k3qz/stopping',1,'stopping','{"why": "cancelled"}');
INSERT INTO "journal" VALUES(34,1700000060.25,'0731-k3qz/collecting',1,'tree gone','{"end": "failed", "cause": "exit code 1"}');
INSERT INTO "journal" VALUES(35,1700000060.25,'0731-k3qz/retried',NULL,'ready','{}');
INSERT INTO "journal" VALUES(36,1700000060.25,'0731-k3qz/retried',1,'start','{}');
INSERT INTO "journal" VALUES(37,1700000060.25,'0731-k3qz/retried',1,'tree gone','{"end": "cancelled", "cause": ""}');
INSERT INTO "journal" VALUES(38,1700000060.25,'0731-k3qz/retried',1,'end cancelled','{"cause": "", "task": "cancelled"}');
INSERT INTO "journal" VALUES(39,1700000060.25,'0731-k3qz/retried',NULL,'retry','{"cause": "retry asked; was cancelled"}');
INSERT INTO "journal" VALUES(40,1700000060.25,'0731-k3qz/retried',NULL,'ready','{}');
INSERT INTO "journal" VALUES(41,1700000060.25,NULL,NULL,'submitted','{"run": "0731-m7wn", "tasks": 1}');
INSERT INTO "journal" VALUES(42,1700000060.25,'0731-m7wn/lonely',NULL,'ready','{}');
INSERT INTO "journal" VALUES(43,1700000060.25,'0731-m7wn/lonely',1,'start','{}');
INSERT INTO "journal" VALUES(44,1700000060.25,'0731-m7wn/lonely',1,'tree gone','{"end": "done", "cause": ""}');
INSERT INTO "journal" VALUES(45,1700000060.25,'0731-m7wn/lonely',1,'end done','{"cause": "", "task": "done"}');
INSERT INTO "journal" VALUES(46,1700000060.25,NULL,NULL,'up','{"pid": 1}');
CREATE TABLE project (
    id         TEXT PRIMARY KEY,            -- 12 hex of the real path of the git common directory
    root       TEXT NOT NULL,
    common_dir TEXT NOT NULL,
    created    REAL NOT NULL
) STRICT;
INSERT INTO "project" VALUES('0123456789ab','/repo','/repo/.git',1700000000.25);
INSERT INTO "project" VALUES('ba9876543210','/other','/repo/.git',1700000060.25);
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
INSERT INTO "run" VALUES('0731-k3qz','0731-k3qz','0123456789ab','a run','main','c0ffee','{"PATH": "/bin"}',1700000000.25);
INSERT INTO "run" VALUES('0731-m7wn','0731-m7wn','ba9876543210','a run','main','c0ffee','{"LC_ALL": "C", "X": "\udcfe"}',1700000060.25);
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
INSERT INTO "task" VALUES(1,'0731-k3qz/done','0731-k3qz','0123456789ab','done','Ende gut ‮🦊','{"after": [], "argv": ["caf\udce9", "a b"], "cores": [0, 2], "kind": "shell", "name": "done", "params": {"X": "\udcff"}, "priority": 50, "prompt": "do\nit", "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "Ende gut \u202e\ud83e\udd8a"}','done','done',1,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(2,'0731-k3qz/failed','0731-k3qz','0123456789ab','failed','failed','{"after": [], "argv": ["true"], "cores": 2, "kind": "shell", "name": "failed", "params": {}, "priority": 90, "prompt": null, "retries": 1, "task_class": "interactive", "timeout_s": 5.5, "title": "failed"}','failed','failed',2,2,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(3,'0731-k3qz/cancelled','0731-k3qz','0123456789ab','cancelled','cancelled','{"after": ["done"], "argv": ["true"], "cores": 0, "kind": "shell", "name": "cancelled", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "batch", "timeout_s": 0.0, "title": "cancelled"}','cancelled','cancelled',0,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(4,'0731-k3qz/skipped','0731-k3qz','0123456789ab','skipped','skipped','{"after": ["failed"], "argv": ["true"], "cores": 0, "kind": "shell", "name": "skipped", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "skipped"}','skipped','it failed',0,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(5,'0731-k3qz/quarantined','0731-k3qz','0123456789ab','quarantined','quarantined','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "quarantined", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "quarantined"}','quarantined','lost',1,0,1,0.0,1700000060.25);
INSERT INTO "task" VALUES(6,'0731-k3qz/backoff','0731-k3qz','0123456789ab','backoff','backoff','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "backoff", "params": {}, "priority": 50, "prompt": null, "retries": 9, "task_class": "normal", "timeout_s": 0.0, "title": "backoff"}','ready','failed',1,1,0,1700000092.25,1700000060.25);
INSERT INTO "task" VALUES(7,'0731-k3qz/launching','0731-k3qz','0123456789ab','launching','launching','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "launching", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "launching"}','running','',1,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(8,'0731-k3qz/running','0731-k3qz','0123456789ab','running','running','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "running", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "running"}','running','',1,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(9,'0731-k3qz/stopping','0731-k3qz','0123456789ab','stopping','stopping','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "stopping", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "stopping"}','running','',1,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(10,'0731-k3qz/collecting','0731-k3qz','0123456789ab','collecting','collecting','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "collecting", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "collecting"}','running','',1,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(11,'0731-k3qz/waiting','0731-k3qz','0123456789ab','waiting','waiting','{"after": ["running", "done"], "argv": ["true"], "cores": 0, "kind": "shell", "name": "waiting", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "waiting"}','waiting','',0,0,0,0.0,1700000000.25);
INSERT INTO "task" VALUES(12,'0731-k3qz/ready','0731-k3qz','0123456789ab','ready','ready','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "ready", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "ready"}','ready','',0,0,0,0.0,1700000000.25);
INSERT INTO "task" VALUES(13,'0731-k3qz/retried','0731-k3qz','0123456789ab','retried','retried','{"after": ["done"], "argv": ["true"], "cores": 0, "kind": "shell", "name": "retried", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "retried"}','ready','retry asked; was cancelled',1,0,0,0.0,1700000060.25);
INSERT INTO "task" VALUES(14,'0731-m7wn/lonely','0731-m7wn','ba9876543210','lonely','lonely','{"after": [], "argv": ["true"], "cores": 0, "kind": "shell", "name": "lonely", "params": {}, "priority": 50, "prompt": null, "retries": 0, "task_class": "normal", "timeout_s": 0.0, "title": "lonely"}','done','done',1,0,0,0.0,1700000060.25);
CREATE INDEX task_run ON task (run, ord);
CREATE INDEX task_name ON task (name, ord);
CREATE INDEX task_open ON task (state) WHERE state IN ('waiting', 'ready', 'running', 'paused', 'parked');
CREATE INDEX dependency_needs ON dependency (needs);
CREATE INDEX attempt_open ON attempt (state) WHERE state <> 'released';
CREATE INDEX attempt_worktree ON attempt (task) WHERE worktree IS NOT NULL AND removed IS NULL;
CREATE INDEX journal_task ON journal (task, seq);
COMMIT;
PRAGMA user_version=1;
