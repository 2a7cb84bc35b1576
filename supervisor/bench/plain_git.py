"""The same work without nightcrew, as a shell script would do it: `git worktree add`, `tmux new-session`, one agent after the other."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from supervisor.bench.arrivals import Arrivals
from supervisor.bench.figures import Burst, Spawn
from supervisor.bench.workspace import by_hand, end_server
from supervisor.host import files, placement
from supervisor.host.paths import Home


class PlainGit:
    """A tmux server of its own, and worktrees beside each other under `root`."""

    def __init__(self, root: Path, repo: Path, arrivals: Arrivals) -> None:
        self._trees = root / "trees"
        self._home = Home(root)  # for a socket whose path is short enough
        self._repo = repo
        self._arrivals = arrivals
        self._names = (f"plain{number}" for number in itertools.count())

    def start(self) -> None:
        """Have the server run already, as ours does. The worktrees lie as ours do, so that the tools are compared and not places."""
        files.private_dir(self._home.run_dir)
        self._trees.mkdir(parents=True)
        placement.spread(self._trees)
        self._tmux("start-server", ";", "set-option", "-s", "exit-empty", "off")

    def burst(self, count: int) -> Burst:
        """Start `count` agents, wait until all are up, and end them."""
        names = list(itertools.islice(self._names, count))
        ordered = time.monotonic()
        made = {name: self._spawn(name) for name in names}
        seen = self._arrivals.wait(names)
        self._arrivals.let_go(count)
        return tuple(
            Spawn.between(ordered, tree, min(pane, seen[name]), min(pane, seen[name]), seen[name]) for name, (tree, pane) in made.items()
        )

    def end(self) -> None:
        """End every process of this side."""
        end_server(self._home)

    def _spawn(self, name: str) -> tuple[float, float]:
        tree = self._trees / name
        by_hand(["git", "worktree", "add", "-q", "-b", f"bench/{name}", str(tree), "HEAD"], self._repo)
        has_tree = time.monotonic()
        self._tmux("new-session", "-d", "-s", name, "-c", str(tree), *self._arrivals.argv(name))
        return has_tree, time.monotonic()

    def _tmux(self, *words: str) -> None:
        by_hand(["tmux", "-f", "/dev/null", "-S", str(self._home.tmux_socket), *words], self._trees)
