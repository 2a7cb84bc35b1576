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
INSERT INTO "access_token" VALUES('000000000000','abababababababababababababababababababababababababababababababab','api','änna','ci','["act", "read", "submit"]','["0123456789ab"]',0,1,20.0,100,1.0,1700000060.25,1700000060.25,NULL,1700000060.25,NULL);
INSERT INTO "access_token" VALUES('111111111111','abababababababababababababababababababababababababababababababab','device','änna','phone','["read"]','[]',0,1,20.0,100,0.0,1700000060.25,1700000060.25,NULL,NULL,NULL);
INSERT INTO "access_token" VALUES('222222222222','abababababababababababababababababababababababababababababababab','api','änna','old','["act"]','[]',0,1,20.0,100,0.0,1700000060.25,1700000060.25,NULL,NULL,1700000060.25);
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
INSERT INTO "attempt" VALUES('0731-k3qz/backoff',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'failed','failed','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/collecting',1,'collecting','','',1700000060.25,1700000060.25,NULL,NULL,'failed','exit code 1',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/done',1,'released','','',1700000060.25,1700000060.25,1700000060.25,'done','done','','/w/done','/d/done','nightcrew/0731-k3qz/done/work','c0ffee','$1','%1',77,'beef','{"schema": 1, "end": "done"}',1700000060.25,NULL,NULL,NULL,NULL,NULL,'{"wall_s": 60.0}');
INSERT INTO "attempt" VALUES('0731-k3qz/failed',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'timeout','timeout','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/failed',2,'ended','again','',1700000060.25,1700000060.25,1700000060.25,'failed','failed','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/launching',1,'launching','','',1700000060.25,NULL,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/quarantined',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'lost','lost','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/retried',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'cancelled','cancelled','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/running',1,'running','','',1700000060.25,1700000060.25,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'0123456789ab/ready@4d18bae604a9','{"backend": "overlay"}',2,20010,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/stopping',1,'stopping','','cancelled',1700000060.25,1700000060.25,NULL,NULL,NULL,'',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-k3qz/try-2',1,'ended','','',1700000060.25,1700000060.25,1700000060.25,'done','done','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "attempt" VALUES('0731-m7wn/lonely',1,'ended','','',1700000060.25,NULL,1700000060.25,'done','done','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "choice" VALUES('0731-k3qz/try','0731-k3qz/try-2',1,'c0ffee','person','it is
shorter','{"schema": 1, "criteria": ["end", "gate", "change", "what the gate goes by", "judge", "lines changed", "cost", "time"], "places": [{"task": "0731-k3qz/try-2", "state": "done", "epoch": 1, "tip": "", "gate": null, "gate_why": "", "weakened": null, "judged": null, "files": null, "lines": null, "cost_usd": null, "seconds": null, "place": 1, "why": "the only one"}], "notes": ["\u00e4\u202e"]}',1700000060.25);
CREATE TABLE conversation (
    task    TEXT NOT NULL REFERENCES task (id),
    epoch   INTEGER NOT NULL,
    session TEXT NOT NULL,                  -- its id, as the agent calls it; empty until the agent has told
    origin  TEXT NOT NULL,                  -- JSON of core.conversations.Origin; empty: it began anew
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
INSERT INTO "conversation" VALUES('0731-k3qz/done',1,'5e55-10n','');
INSERT INTO "conversation" VALUES('0731-k3qz/running',1,'c0-py','{"how": "fork", "session": "5e55-10n", "task": "0731-k3qz/done", "epoch": 1, "start": "c0ffee"}');
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
INSERT INTO "delivery" VALUES(1,'0731-k3qz/running',NULL,'pending','kept äö
🦊',14,'400467163d0f1956333a7b14f4a16c86715d98bace08cae2dd57210f3e4b4aa0','its agent works',1700000060.25,1700000060.25);
INSERT INTO "delivery" VALUES(2,'0731-k3qz/running',1,'typing','being typed',11,'77870cd6de640808e6be47649795aa68b123eca7252022e8c25db33372f2c157','',1700000060.25,1700000060.25);
INSERT INTO "delivery" VALUES(3,'0731-k3qz/running',1,'confirmed','',10,'c648fd158170ce1b6fd550acb9c192841566e5c787cd6571cbbe3cbcf33e2627','',1700000060.25,1700000060.25);
INSERT INTO "delivery" VALUES(4,'0731-k3qz/running',1,'unconfirmed','',12,'03982e2adb2925b16d9a1a591a0665a8db33153c21d9fc1895a016da460d35cd','its kind does not say',1700000060.25,1700000060.25);
INSERT INTO "delivery" VALUES(5,'0731-k3qz/running',NULL,'dropped','',8,'38cb8dd843399c196b059ef16e8e97b4cfb5dc140832284f2bc5181f81a64107','its task ended first',1700000060.25,1700000060.25);
INSERT INTO "delivery" VALUES(6,'0731-k3qz/running',NULL,'pending','given',5,'5b729e0f619797fd61108a4bb177273222ad9ac5538299c8386f061e29046e60','',1700000060.25,1700000060.25);
CREATE TABLE dependency (
    task  TEXT NOT NULL REFERENCES task (id),
    needs TEXT NOT NULL REFERENCES task (id),
    PRIMARY KEY (task, needs)
) STRICT, WITHOUT ROWID;
INSERT INTO "dependency" VALUES('0731-k3qz/cancelled','0731-k3qz/done');
INSERT INTO "dependency" VALUES('0731-k3qz/retried','0731-k3qz/done');
INSERT INTO "dependency" VALUES('0731-k3qz/waiting','0731-k3qz/done');
INSERT INTO "dependency" VALUES('0731-k3qz/skipped','0731-k3qz/failed');
INSERT INTO "dependency" VALUES('0731-k3qz/open','0731-k3qz/open-1');
INSERT INTO "dependency" VALUES('0731-k3qz/open-judge-1','0731-k3qz/open-1');
INSERT INTO "dependency" VALUES('0731-k3qz/open','0731-k3qz/open-judge-1');
INSERT INTO "dependency" VALUES('0731-k3qz/waiting','0731-k3qz/running');
INSERT INTO "dependency" VALUES('0731-k3qz/try','0731-k3qz/try-1');
INSERT INTO "dependency" VALUES('0731-k3qz/try','0731-k3qz/try-2');
CREATE TABLE journal (
    seq   INTEGER PRIMARY KEY,
    at    REAL NOT NULL,
    task  TEXT,
    epoch INTEGER,
    event TEXT NOT NULL,
    data  TEXT NOT NULL DEFAULT '{}'        -- JSON object
) STRICT;
INSERT INTO "journal" VALUES(1,1700000000.25,NULL,NULL,'submitted','{"run": "0731-k3qz", "tasks": 19}');
INSERT INTO "journal" VALUES(2,1700000000.25,'0731-k3qz/done',NULL,'ready','{}');
INSERT INTO "journal" VALUES(3,1700000000.25,'0731-k3qz/failed',NULL,'ready','{}');
INSERT INTO "journal" VALUES(4,1700000000.25,'0731-k3qz/quarantined',NULL,'ready','{}');
INSERT INTO "journal" VALUES(5,1700000000.25,'0731-k3qz/backoff',NULL,'ready','{}');
INSERT INTO "journal" VALUES(6,1700000000.25,'0731-k3qz/launching',NULL,'ready','{}');
INSERT INTO "journal" VALUES(7,1700000000.25,'0731-k3qz/running',NULL,'ready','{}');
INSERT INTO "journal" VALUES(8,1700000000.25,'0731-k3qz/stopping',NULL,'ready','{}');
INSERT INTO "journal" VALUES(9,1700000000.25,'0731-k3qz/collecting',NULL,'ready','{}');
INSERT INTO "journal" VALUES(10,1700000000.25,'0731-k3qz/ready',NULL,'ready','{}');
INSERT INTO "journal" VALUES(11,1700000000.25,'0731-k3qz/try-1',NULL,'ready','{}');
INSERT INTO "journal" VALUES(12,1700000000.25,'0731-k3qz/try-2',NULL,'ready','{}');
INSERT INTO "journal" VALUES(13,1700000000.25,'0731-k3qz/open-1',NULL,'ready','{}');
INSERT INTO "journal" VALUES(14,1700000060.25,'0731-k3qz/done',1,'start','{"spec_sha256": "1d9ea7f89acadf629041e1a1f32095a3286b9d0623b3b302d63eafdb75ca058d"}');
INSERT INTO "journal" VALUES(15,1700000060.25,'0731-k3qz/done',1,'tree gone','{"end": "done", "cause": ""}');
INSERT INTO "journal" VALUES(16,1700000060.25,'0731-k3qz/done',1,'end done','{"cause": "", "task": "done"}');
INSERT INTO "journal" VALUES(17,1700000060.25,'0731-k3qz/failed',1,'start','{"spec_sha256": "214092ce40517d9394e49ad1c5323ba0e93b0daf3af3f2cf817aab7fc1a41a2a"}');
INSERT INTO "journal" VALUES(18,1700000060.25,'0731-k3qz/failed',1,'tree gone','{"end": "timeout", "cause": ""}');
INSERT INTO "journal" VALUES(19,1700000060.25,'0731-k3qz/failed',1,'end timeout','{"cause": "", "task": "ready"}');
INSERT INTO "journal" VALUES(20,1700000060.25,'0731-k3qz/failed',2,'start','{"cause": "again", "spec_sha256": "214092ce40517d9394e49ad1c5323ba0e93b0daf3af3f2cf817aab7fc1a41a2a"}');
INSERT INTO "journal" VALUES(21,1700000060.25,'0731-k3qz/failed',2,'tree gone','{"end": "failed", "cause": ""}');
INSERT INTO "journal" VALUES(22,1700000060.25,'0731-k3qz/failed',2,'end failed','{"cause": "", "task": "failed"}');
INSERT INTO "journal" VALUES(23,1700000060.25,'0731-k3qz/skipped',NULL,'skipped','{"reason": "it failed"}');
INSERT INTO "journal" VALUES(24,1700000060.25,'0731-k3qz/cancelled',NULL,'ready','{}');
INSERT INTO "journal" VALUES(25,1700000060.25,'0731-k3qz/cancelled',NULL,'cancelled','{"reason": "cancelled"}');
INSERT INTO "journal" VALUES(26,1700000060.25,'0731-k3qz/quarantined',1,'start','{"spec_sha256": "62f611b79c169845e2147f9a0287943f0f0e2ee06b52b5a85f306be6c938502a"}');
INSERT INTO "journal" VALUES(27,1700000060.25,'0731-k3qz/quarantined',1,'tree gone','{"end": "lost", "cause": ""}');
INSERT INTO "journal" VALUES(28,1700000060.25,'0731-k3qz/quarantined',1,'end lost','{"cause": "", "task": "quarantined"}');
INSERT INTO "journal" VALUES(29,1700000060.25,'0731-k3qz/backoff',1,'start','{"spec_sha256": "00f55cdb69b398a2a60956fe5d14fca117c5fb0ebd1dec5d4681ded7a7117c5a"}');
INSERT INTO "journal" VALUES(30,1700000060.25,'0731-k3qz/backoff',1,'tree gone','{"end": "failed", "cause": ""}');
INSERT INTO "journal" VALUES(31,1700000060.25,'0731-k3qz/backoff',1,'end failed','{"cause": "", "task": "ready"}');
INSERT INTO "journal" VALUES(32,1700000060.25,'0731-k3qz/launching',1,'start','{"spec_sha256": "6e1f59ce031a677c904f3cace6bdaf382d3c2f69504ec31bf9ff5e1729aabfc3"}');
INSERT INTO "journal" VALUES(33,1700000060.25,'0731-k3qz/running',1,'start','{"spec_sha256": "1b681fc2d28638d4d37a658c81fc1da85aaada004dcea4d3c46c6f5276bc2405"}');
INSERT INTO "journal" VALUES(34,1700000060.25,'0731-k3qz/stopping',1,'start','{"spec_sha256": "2284b2a1bca7c67afb6e881eeb67c352b58478597957b920e9a69d679959c5f9"}');
INSERT INTO "journal" VALUES(35,1700000060.25,'0731-k3qz/collecting',1,'start','{"spec_sha256": "72e8cc229994c0b7ed63923559c9263df4e50e9e38d4f03de3bf0606ea480ce9"}');
INSERT INTO "journal" VALUES(36,1700000060.25,'0731-k3qz/stopping',1,'stopping','{"why": "cancelled"}');
INSERT INTO "journal" VALUES(37,1700000060.25,'0731-k3qz/collecting',1,'tree gone','{"end": "failed", "cause": "exit code 1"}');
INSERT INTO "journal" VALUES(38,1700000060.25,'0731-k3qz/retried',NULL,'ready','{}');
INSERT INTO "journal" VALUES(39,1700000060.25,'0731-k3qz/retried',1,'start','{"spec_sha256": "32fb3e3ea9e2856155e49f66cf6d01e53309dc1101a7a62b52f246a6a88d917f"}');
INSERT INTO "journal" VALUES(40,1700000060.25,'0731-k3qz/retried',1,'tree gone','{"end": "cancelled", "cause": ""}');
INSERT INTO "journal" VALUES(41,1700000060.25,'0731-k3qz/retried',1,'end cancelled','{"cause": "", "task": "cancelled"}');
INSERT INTO "journal" VALUES(42,1700000060.25,'0731-k3qz/retried',NULL,'retry','{"cause": "retry asked; was cancelled"}');
INSERT INTO "journal" VALUES(43,1700000060.25,'0731-k3qz/retried',NULL,'ready','{}');
INSERT INTO "journal" VALUES(44,1700000060.25,NULL,NULL,'token created','{"token": "000000000000", "of": "api", "user": "\u00e4nna", "name": "ci", "scopes": ["act", "read", "submit"]}');
INSERT INTO "journal" VALUES(45,1700000060.25,NULL,NULL,'token created','{"token": "111111111111", "of": "device", "user": "\u00e4nna", "name": "phone", "scopes": ["read"]}');
INSERT INTO "journal" VALUES(46,1700000060.25,NULL,NULL,'token created','{"token": "222222222222", "of": "api", "user": "\u00e4nna", "name": "old", "scopes": ["act"]}');
INSERT INTO "journal" VALUES(47,1700000060.25,NULL,NULL,'token revoked','{"token": "222222222222"}');
INSERT INTO "journal" VALUES(48,1700000060.25,NULL,NULL,'night began','{"run": "0731-m7wn", "until": 1700030000.0, "grace_s": 600.0, "cost_max": 40.0, "parallel": 3, "on_cap": "stop", "plan_hash": "abababababababababababababababababababababababababababababababab", "timer": "nightly"}');
INSERT INTO "journal" VALUES(49,1700000060.25,NULL,NULL,'submitted','{"run": "0731-m7wn", "tasks": 1}');
INSERT INTO "journal" VALUES(50,1700000060.25,'0731-m7wn/lonely',NULL,'ready','{}');
INSERT INTO "journal" VALUES(51,1700000060.25,'0731-m7wn/lonely',1,'start','{"spec_sha256": "acf2b38ebce3bcd448f7b3af4a0920eb6bc27aa55886551fcc9fb66da70cd849"}');
INSERT INTO "journal" VALUES(52,1700000060.25,'0731-m7wn/lonely',1,'tree gone','{"end": "done", "cause": ""}');
INSERT INTO "journal" VALUES(53,1700000060.25,'0731-m7wn/lonely',1,'end done','{"cause": "", "task": "done"}');
INSERT INTO "journal" VALUES(54,1700000060.25,NULL,NULL,'up','{"pid": 1}');
INSERT INTO "journal" VALUES(55,1700000060.25,NULL,NULL,'snapshot building','{"snapshot": "0123456789ab/building@4d18bae604a9", "epoch": 1}');
INSERT INTO "journal" VALUES(56,1700000060.25,NULL,NULL,'snapshot building','{"snapshot": "0123456789ab/ready@4d18bae604a9", "epoch": 1}');
INSERT INTO "journal" VALUES(57,1700000060.25,NULL,NULL,'snapshot ready','{"snapshot": "0123456789ab/ready@4d18bae604a9", "epoch": 1}');
INSERT INTO "journal" VALUES(58,1700000060.25,NULL,NULL,'snapshot building','{"snapshot": "0123456789ab/failed@4d18bae604a9", "epoch": 1}');
INSERT INTO "journal" VALUES(59,1700000060.25,NULL,NULL,'snapshot failed','{"snapshot": "0123456789ab/failed@4d18bae604a9", "epoch": 1, "reason": "uv.lock changed"}');
INSERT INTO "journal" VALUES(60,1700000060.25,NULL,NULL,'snapshot building','{"snapshot": "0123456789ab/stale@4d18bae604a9", "epoch": 1}');
INSERT INTO "journal" VALUES(61,1700000060.25,NULL,NULL,'snapshot ready','{"snapshot": "0123456789ab/stale@4d18bae604a9", "epoch": 1}');
INSERT INTO "journal" VALUES(62,1700000060.25,NULL,NULL,'snapshot stale','{"snapshot": "0123456789ab/stale@4d18bae604a9", "epoch": 1, "reason": "uv.lock changed"}');
INSERT INTO "journal" VALUES(63,1700000060.25,'0731-k3qz/running',NULL,'send','{"delivery": 1, "bytes": 14, "sha256": "400467163d0f1956333a7b14f4a16c86715d98bace08cae2dd57210f3e4b4aa0"}');
INSERT INTO "journal" VALUES(64,1700000060.25,'0731-k3qz/running',NULL,'send','{"delivery": 2, "bytes": 11, "sha256": "77870cd6de640808e6be47649795aa68b123eca7252022e8c25db33372f2c157"}');
INSERT INTO "journal" VALUES(65,1700000060.25,'0731-k3qz/running',NULL,'send','{"delivery": 3, "bytes": 10, "sha256": "c648fd158170ce1b6fd550acb9c192841566e5c787cd6571cbbe3cbcf33e2627"}');
INSERT INTO "journal" VALUES(66,1700000060.25,'0731-k3qz/running',NULL,'send','{"delivery": 4, "bytes": 12, "sha256": "03982e2adb2925b16d9a1a591a0665a8db33153c21d9fc1895a016da460d35cd"}');
INSERT INTO "journal" VALUES(67,1700000060.25,'0731-k3qz/running',NULL,'send','{"delivery": 5, "bytes": 8, "sha256": "38cb8dd843399c196b059ef16e8e97b4cfb5dc140832284f2bc5181f81a64107"}');
INSERT INTO "journal" VALUES(68,1700000060.25,'0731-k3qz/running',1,'send confirmed','{"delivery": 3, "bytes": 10, "sha256": "c648fd158170ce1b6fd550acb9c192841566e5c787cd6571cbbe3cbcf33e2627"}');
INSERT INTO "journal" VALUES(69,1700000060.25,'0731-k3qz/running',1,'send unconfirmed','{"delivery": 4, "bytes": 12, "sha256": "03982e2adb2925b16d9a1a591a0665a8db33153c21d9fc1895a016da460d35cd", "why": "its kind does not say"}');
INSERT INTO "journal" VALUES(70,1700000060.25,'0731-k3qz/running',NULL,'send dropped','{"delivery": 5, "bytes": 8, "sha256": "38cb8dd843399c196b059ef16e8e97b4cfb5dc140832284f2bc5181f81a64107", "why": "its task ended first"}');
INSERT INTO "journal" VALUES(71,1700000060.25,NULL,NULL,'mail sent','{"mail": "01000000000000000000000000", "to": "person", "type": "request", "bytes": 0}');
INSERT INTO "journal" VALUES(72,1700000060.25,NULL,NULL,'mail sent','{"mail": "01111111111111111111111111", "to": "0731-k3qz/running", "type": "request", "bytes": 0}');
INSERT INTO "journal" VALUES(73,1700000060.25,NULL,NULL,'mail sent','{"mail": "01222222222222222222222222", "to": "person", "type": "request", "bytes": 0}');
INSERT INTO "journal" VALUES(74,1700000060.25,'0731-k3qz/running',NULL,'send','{"delivery": 6, "bytes": 5, "sha256": "5b729e0f619797fd61108a4bb177273222ad9ac5538299c8386f061e29046e60"}');
INSERT INTO "journal" VALUES(75,1700000060.25,NULL,NULL,'mail sent','{"mail": "01333333333333333333333333", "to": "0731-k3qz/running", "type": "request", "bytes": 0}');
INSERT INTO "journal" VALUES(76,1700000060.25,'0731-k3qz/running',1,'mail read','{"mail": "01333333333333333333333333"}');
INSERT INTO "journal" VALUES(77,1700000060.25,NULL,NULL,'mail sent','{"mail": "01444444444444444444444444", "to": "person", "type": "request", "bytes": 0}');
INSERT INTO "journal" VALUES(78,1700000060.25,NULL,NULL,'mail bounced','{"mail": "01444444444444444444444444", "why": "it ended"}');
INSERT INTO "journal" VALUES(79,1700000060.25,NULL,NULL,'mail sent','{"mail": "01555555555555555555555555", "to": "0731-k3qz/running", "type": "request", "bytes": 0}');
INSERT INTO "journal" VALUES(80,1700000060.25,'0731-k3qz/running',NULL,'mail lost','{"mail": "01555555555555555555555555", "why": "it ended"}');
INSERT INTO "journal" VALUES(81,1700000060.25,'0731-k3qz/running',NULL,'mail sent','{"mail": "01AAAAAAAAAAAAAAAAAAAAAAAA", "to": "person", "type": "reply", "bytes": 0}');
INSERT INTO "journal" VALUES(82,1700000060.25,'0731-k3qz/running',1,'conversation fork','{"session": "5e55-10n", "of": "0731-k3qz/done:1", "start": "c0ffee"}');
INSERT INTO "journal" VALUES(83,1700000060.25,'0731-k3qz/try-2',1,'start','{"spec_sha256": "87033cb568f348f6a4570049213116a868c2e31bb08a9f8d85ccd01a305015ba"}');
INSERT INTO "journal" VALUES(84,1700000060.25,'0731-k3qz/try-2',1,'tree gone','{"end": "done", "cause": ""}');
INSERT INTO "journal" VALUES(85,1700000060.25,'0731-k3qz/try-2',1,'end done','{"cause": "", "task": "done"}');
INSERT INTO "journal" VALUES(86,1700000060.25,'0731-k3qz/try',NULL,'done','{"reason": "0731-k3qz/try-2 was chosen by person: it is shorter"}');
INSERT INTO "journal" VALUES(87,1700000060.25,'0731-k3qz/try',NULL,'chosen','{"winner": "0731-k3qz/try-2", "epoch": 1, "commit": "c0ffee", "by": "person", "why": "it is\nshorter"}');
INSERT INTO "journal" VALUES(88,1700000060.25,'0731-k3qz/try-2',1,'chosen','{"of": "0731-k3qz/try", "by": "person"}');
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
INSERT INTO "lease" VALUES(1,'0123456789ab','src/api','exclusive','0731-k3qz/running',1,1700000060.25,1700000660.25,1,NULL,'');
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
INSERT INTO "mail" VALUES('01000000000000000000000000','0123456789ab','01000000000000000000000000','',0,'person','person','request','normal','which port?  ',NULL,0,0,1700000000.0,'new',NULL,1700000060.25,'','k0',NULL,'words 0  ');
INSERT INTO "mail" VALUES('01111111111111111111111111','0123456789ab','01111111111111111111111111','',0,'person','0731-k3qz/running','request','normal','which port?  ',NULL,0,0,1700000000.0,'new',NULL,1700000060.25,'','k1',NULL,'words 1  ');
INSERT INTO "mail" VALUES('01222222222222222222222222','0123456789ab','01222222222222222222222222','',0,'person','person','request','normal','which port?  ',NULL,0,0,1700000000.0,'given',NULL,1700000060.25,'','k2',6,'words 2  ');
INSERT INTO "mail" VALUES('01333333333333333333333333','0123456789ab','01333333333333333333333333','',0,'person','0731-k3qz/running','request','normal','which port?  ',NULL,0,7,1700000000.0,'read',1,1700000060.25,'','k3',NULL,'words 3  ');
INSERT INTO "mail" VALUES('01444444444444444444444444','0123456789ab','01444444444444444444444444','',0,'person','person','request','normal','which port?  ',NULL,0,0,1700000000.0,'bounced',NULL,1700000060.25,'it ended','k4',NULL,'words 4  ');
INSERT INTO "mail" VALUES('01555555555555555555555555','0123456789ab','01555555555555555555555555','',0,'person','0731-k3qz/running','request','normal','which port?  ',NULL,0,0,1700000000.0,'lost',NULL,1700000060.25,'it ended','k5',NULL,'words 5  ');
INSERT INTO "mail" VALUES('01AAAAAAAAAAAAAAAAAAAAAAAA','0123456789ab','01000000000000000000000000','01000000000000000000000000',1,'0731-k3qz/running','person','reply','normal','which port?  ',2000000000.0,0,0,1700000000.0,'new',NULL,1700000060.25,'','k',NULL,'8080');
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
INSERT INTO "night" VALUES('0731-m7wn',1700030000.0,600.0,40.0,3,'stop','open',1700000060.25,NULL,'','/repo/plan.toml','abababababababababababababababababababababababababababababababab','nightly');
CREATE TABLE project (
    id         TEXT PRIMARY KEY,            -- 12 hex of the real path of the git common directory
    root       TEXT NOT NULL,
    common_dir TEXT NOT NULL,
    created    REAL NOT NULL
) STRICT;
INSERT INTO "project" VALUES('0123456789ab','/repo','/repo/.git',1700000000.25);
INSERT INTO "project" VALUES('ba9876543210','/other','/repo/.git',1700000060.25);
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
INSERT INTO "run" VALUES('0731-k3qz','0731-k3qz','0123456789ab','a run','main','c0ffee','{"PATH": "/bin"}',1700000000.25,'');
INSERT INTO "run" VALUES('0731-m7wn','0731-m7wn','ba9876543210','a run','main','c0ffee','{"LC_ALL": "C", "X": "\udcfe"}',1700000060.25,'0731-m7wn');
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
INSERT INTO "snapshot" VALUES('0123456789ab/building@4d18bae604a9','0123456789ab','building','{"copy": [".env"], "cores": 0, "kind": "memory", "lock_files": ["uv.lock", "poetry.lock", "requirements*.txt", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock"], "memory_max": 1073741824, "name": "building", "preload": ["ast"], "processes_max": 0, "setup": ["make \udcff"], "verify": ["true"]}','building','',1,'','c0ffee','{"uv.lock": "ab"}','',1700000060.25,1700000060.25,0.0,0.0,0);
INSERT INTO "snapshot" VALUES('0123456789ab/failed@4d18bae604a9','0123456789ab','failed','{"copy": [".env"], "cores": 0, "kind": "memory", "lock_files": ["uv.lock", "poetry.lock", "requirements*.txt", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock"], "memory_max": 1073741824, "name": "failed", "preload": ["ast"], "processes_max": 0, "setup": ["make \udcff"], "verify": ["true"]}','failed','uv.lock changed',1,'','c0ffee','{"uv.lock": "ab"}','',1700000060.25,1700000060.25,0.0,0.0,0);
INSERT INTO "snapshot" VALUES('0123456789ab/ready@4d18bae604a9','0123456789ab','ready','{"copy": [".env"], "cores": 0, "kind": "memory", "lock_files": ["uv.lock", "poetry.lock", "requirements*.txt", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock"], "memory_max": 1073741824, "name": "ready", "preload": ["ast"], "processes_max": 0, "setup": ["make \udcff"], "verify": ["true"]}','ready','',1,'','c0ffee','{"uv.lock": "ab"}','{"lower": "/s"}',1700000060.25,1700000060.25,90.5,2.25,1048576);
INSERT INTO "snapshot" VALUES('0123456789ab/stale@4d18bae604a9','0123456789ab','stale','{"copy": [".env"], "cores": 0, "kind": "memory", "lock_files": ["uv.lock", "poetry.lock", "requirements*.txt", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock"], "memory_max": 1073741824, "name": "stale", "preload": ["ast"], "processes_max": 0, "setup": ["make \udcff"], "verify": ["true"]}','stale','uv.lock changed',1,'0731-k3qz','c0ffee','{"uv.lock": "ab"}','{"lower": "/s"}',1700000060.25,1700000060.25,90.5,2.25,1048576);
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
INSERT INTO "task" VALUES(1,'0731-k3qz/done','0731-k3qz','0123456789ab','done','Ende gut ‮🦊','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["caf\udce9", "a b"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": [0, 2], "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "done", "network": true, "not_after": 0.0, "on_loss": "", "params": {"X": "\udcff"}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": "do\nit", "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "Ende gut \u202e\ud83e\udd8a", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','done','done',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(2,'0731-k3qz/failed','0731-k3qz','0123456789ab','failed','failed','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 2, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "failed", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 90, "processes_max": 0, "prompt": null, "retries": 1, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "interactive", "timeout_s": 5.5, "title": "failed", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','failed','failed',2,2,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(3,'0731-k3qz/cancelled','0731-k3qz','0123456789ab','cancelled','cancelled','{"after": ["done"], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "cancelled", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "batch", "timeout_s": 0.0, "title": "cancelled", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','cancelled','cancelled',0,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(4,'0731-k3qz/skipped','0731-k3qz','0123456789ab','skipped','skipped','{"after": ["failed"], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "skipped", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "skipped", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','skipped','it failed',0,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(5,'0731-k3qz/quarantined','0731-k3qz','0123456789ab','quarantined','quarantined','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "quarantined", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "quarantined", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','quarantined','lost',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(6,'0731-k3qz/backoff','0731-k3qz','0123456789ab','backoff','backoff','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "backoff", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 9, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "backoff", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','ready','failed',1,1,1700000092.25,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(7,'0731-k3qz/launching','0731-k3qz','0123456789ab','launching','launching','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "launching", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "launching", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','running','',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(8,'0731-k3qz/running','0731-k3qz','0123456789ab','running','running','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "running", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": ["src/api"], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "running", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','running','',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(9,'0731-k3qz/stopping','0731-k3qz','0123456789ab','stopping','stopping','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "stopping", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "stopping", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','running','',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(10,'0731-k3qz/collecting','0731-k3qz','0123456789ab','collecting','collecting','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "collecting", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "collecting", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','running','',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(11,'0731-k3qz/waiting','0731-k3qz','0123456789ab','waiting','waiting','{"after": ["running", "done"], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "waiting", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "waiting", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','waiting','',0,0,0.0,1700000000.25,0,'[]');
INSERT INTO "task" VALUES(12,'0731-k3qz/ready','0731-k3qz','0123456789ab','ready','ready','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "ready", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "ready", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','ready','',0,0,0.0,1700000000.25,0,'[]');
INSERT INTO "task" VALUES(13,'0731-k3qz/retried','0731-k3qz','0123456789ab','retried','retried','{"after":["done"],"after_any":[],"after_memory":[],"after_on":"done","allow":null,"argv":["true"],"assigned":"","assumed":[],"candidate_of":"","candidates":[],"children_max":0,"continue_from":"","continue_how":"fork","cores":0,"cost_max":0.0,"cpu_max":0.0,"deadline":0.0,"decide":"","depth_max":0,"disk_max":0,"environment":"","gate":[],"gate_timeout_s":0.0,"gpus":true,"interactive":false,"judge_round":0,"kind":"shell","memory_max":0,"model":"","name":"retried","network":true,"not_after":0,"on_loss":"","params":{},"parent":"","parent_epoch":0,"paths":[],"preempt":false,"priority":50,"processes_max":0,"prompt":null,"retries":0,"same_path":false,"sandbox":null,"size":"","snapshot":"","snapshot_id":"","steps_max":0,"submitter":"","tags":[],"task_class":"normal","timeout_s":0.0,"title":"retried","together":"","tokens_max":0,"tpm_max":0,"weight":1.0}','ready','retry asked; was cancelled',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(14,'0731-k3qz/try-1','0731-k3qz','0123456789ab','try-1','try-1','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "try", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": ["true"], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "try-1", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "try-1", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','ready','',0,0,0.0,1700000000.25,0,'[]');
INSERT INTO "task" VALUES(15,'0731-k3qz/try-2','0731-k3qz','0123456789ab','try-2','try-2','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "try", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "try-2", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "try-2", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','done','done',1,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(16,'0731-k3qz/try','0731-k3qz','0123456789ab','try','try','{"after": ["try-1", "try-2"], "after_any": [], "after_memory": [], "after_on": "finished", "allow": null, "argv": [], "assigned": "", "assumed": [], "candidate_of": "", "candidates": ["try-1", "try-2"], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "person", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "try", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "try", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','done','0731-k3qz/try-2 was chosen by person: it is shorter',0,0,0.0,1700000060.25,0,'[]');
INSERT INTO "task" VALUES(17,'0731-k3qz/open-1','0731-k3qz','0123456789ab','open-1','open-1','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "open", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "open-1", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "open-1", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','ready','',0,0,0.0,1700000000.25,0,'[]');
INSERT INTO "task" VALUES(18,'0731-k3qz/open-judge-1','0731-k3qz','0123456789ab','open-judge-1','open-judge-1','{"after": ["open-1"], "after_any": [], "after_memory": [], "after_on": "finished", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": ["open-1"], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 1, "kind": "shell", "memory_max": 0, "model": "", "name": "open-judge-1", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": "best", "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "open-judge-1", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','waiting','',0,0,0.0,1700000000.25,0,'[]');
INSERT INTO "task" VALUES(19,'0731-k3qz/open','0731-k3qz','0123456789ab','open','open','{"after": ["open-1", "open-judge-1"], "after_any": [], "after_memory": [], "after_on": "finished", "allow": null, "argv": [], "assigned": "", "assumed": [], "candidate_of": "", "candidates": ["open-1"], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "gate", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "open", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "open", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','waiting','',0,0,0.0,1700000000.25,0,'[]');
INSERT INTO "task" VALUES(20,'0731-m7wn/lonely','0731-m7wn','ba9876543210','lonely','lonely','{"after": [], "after_any": [], "after_memory": [], "after_on": "done", "allow": null, "argv": ["true"], "assigned": "", "assumed": [], "candidate_of": "", "candidates": [], "children_max": 0, "continue_from": "", "continue_how": "fork", "cores": 0, "cost_max": 0.0, "cpu_max": 0.0, "deadline": 0.0, "decide": "", "depth_max": 0, "disk_max": 0, "environment": "", "gate": [], "gate_timeout_s": 0.0, "gpus": true, "interactive": false, "judge_round": 0, "kind": "shell", "memory_max": 0, "model": "", "name": "lonely", "network": true, "not_after": 0.0, "on_loss": "", "params": {}, "parent": "", "parent_epoch": 0, "paths": [], "preempt": false, "priority": 50, "processes_max": 0, "prompt": null, "retries": 0, "same_path": false, "sandbox": null, "size": "", "snapshot": "", "snapshot_id": "", "steps_max": 0, "submitter": "", "tags": [], "task_class": "normal", "timeout_s": 0.0, "title": "lonely", "together": "", "tokens_max": 0, "tpm_max": 0, "weight": 1.0}','done','done',1,0,0.0,1700000060.25,0,'[]');
CREATE TABLE token_run (
    run    TEXT PRIMARY KEY REFERENCES run (id),
    token  TEXT NOT NULL,                           -- it may be gone
    user   TEXT NOT NULL,
    digest TEXT NOT NULL,                           -- SHA-256 of the request: the same key with another one is refused
    first  INTEGER NOT NULL                         -- `ord` of its first task
) STRICT;
INSERT INTO "token_run" VALUES('0731-m7wn','000000000000','änna','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',20);
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
INSERT INTO "wait" VALUES(1,'0123456789ab','0731-k3qz/running',1,'lease','src/ä‮','["0731-k3qz/stopping", "person"]',0,1.5,61.5,1700000060.25,'over');
INSERT INTO "wait" VALUES(2,'0123456789ab','0731-k3qz/running',1,'lease','src/**','["0731-k3qz/stopping", "person"]',1,1.5,61.5,NULL,'');
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
