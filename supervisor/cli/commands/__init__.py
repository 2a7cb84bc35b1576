"""One verb a file."""
