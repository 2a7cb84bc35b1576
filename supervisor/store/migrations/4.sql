-- Schema 4: the conversations of agents.

CREATE TABLE conversation (
    task    TEXT NOT NULL REFERENCES task (id),
    epoch   INTEGER NOT NULL,
    session TEXT NOT NULL,                  -- its id, as the agent calls it; empty until the agent has told
    origin  TEXT NOT NULL,                  -- JSON of core.conversations.Origin; empty: it began anew
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX conversation_session ON conversation (session) WHERE session <> '';
