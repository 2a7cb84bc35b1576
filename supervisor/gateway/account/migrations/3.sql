-- Schema 3: beside the model that was sent (`model`, which answers) the one that the client asked for: a route may rename it, and its
-- fallback may answer in its place. Empty in rows of schema 2.

ALTER TABLE request ADD COLUMN asked TEXT NOT NULL DEFAULT '';
