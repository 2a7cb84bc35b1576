"""`nightcrew night`: one file a subverb, named as it is, each with a `command`."""
