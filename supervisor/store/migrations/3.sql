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
