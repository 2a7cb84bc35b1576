"""Each attempt its own git worktree: created, opened, rescued, merged, removed."""
