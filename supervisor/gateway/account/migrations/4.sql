-- Schema 4: what proves a request. Empty and null in rows of schema 3.

ALTER TABLE request ADD COLUMN trace TEXT NOT NULL DEFAULT '';  -- core.audit_events.trace_id of its task
ALTER TABLE request ADD COLUMN input_sha256 TEXT;               -- of the body as the client sent it
ALTER TABLE request ADD COLUMN output_sha256 TEXT;              -- of the answer's body as the client got it; null: it got none
