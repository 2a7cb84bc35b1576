"""The task API: programs hand tasks over with a token, and read what became of them; docs/api.md."""
