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
