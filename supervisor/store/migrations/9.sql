-- Schema 9: the words of messages. NULL: a release before this one kept them in the message's file alone.

ALTER TABLE mail ADD COLUMN words TEXT;
