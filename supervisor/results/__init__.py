"""A result, and what speaks for it or against it: verdicts, conflicts, other candidates. Features, views and commands share it."""
