"""The one durable truth: SQLite, one writer. What is not committed here did not happen."""
