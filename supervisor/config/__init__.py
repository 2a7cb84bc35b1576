"""Files that people write, read strictly: every mistake is named with its file, line and key."""
