"""Whether a shard left the worktree as it was: the same commit, no tracked file changed, nothing new that git would track. What git ignores
stays, such as caches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from supervisor.core.errors import Refused, ToolFailed, ToolMissing

DEADLINE_S = 300.0
IDENTITY = {"NAME": "nightcrew", "EMAIL": "nightcrew@localhost"}
_STATUS = ("status", "--porcelain=v2", "-z", "--branch", "--untracked-files=normal", "--ignore-submodules=all")
_WHO = {f"GIT_{role}_{what}": text for role in ("AUTHOR", "COMMITTER") for what, text in IDENTITY.items()}
_SETTINGS = ("core.fsmonitor=false", "core.preloadIndex=false", "core.hooksPath=/dev/null", "advice.detachedHead=false")
"""Without preloading: many workers share the cores, and threads of one git would wait for each other."""
_GIT = ("git", *(word for setting in _SETTINGS for word in ("-c", setting)), "--no-pager")


class Worktree:
    """The worktree at `root`, as it is now."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._environ = {**{name: text for name, text in os.environ.items() if not name.startswith("GIT_")}, **_WHO}
        said = self.git("rev-parse", "--git-path", "index", "HEAD", "--symbolic-full-name", "HEAD").removesuffix("\n")
        index, self._commit, branch = said.rsplit("\n", 2)
        self._index, self._branch = Path(root, index), branch.removeprefix("refs/heads/") if branch != "HEAD" else ""
        self._hidden = set(self._hidden_now())
        self._seen = self._stamp()

    def clean(self) -> list[str]:
        """Undo what differs; what did, as git's status says it. Raises Refused when something differs still."""
        self.unhide()
        found = self._differs()
        self._seen = self._stamp()  # status may have written it
        if not found:
            return []
        if self._branch:
            self.git("symbolic-ref", "HEAD", f"refs/heads/{self._branch}")
        self.git("reset", "-q", "--hard", self._commit)
        self.git("clean", "-ffdq")
        if left := self._differs():
            raise Refused("the worktree does not become clean", on=str(self._root), why=left[0][:200])
        self._seen = self._stamp()
        return found

    def unhide(self) -> None:
        """Have git look again at files that somebody told it to take for unchanged, or not to look for. Nothing is asked while the index
        is the one that we left."""
        if self._stamp() == self._seen:
            return
        if hidden := [path for path in self._hidden_now() if path not in self._hidden]:
            for flag in ("--no-assume-unchanged", "--no-skip-worktree"):
                self.git("update-index", flag, "-z", "--stdin", stdin="\0".join(hidden))
        self._seen = self._stamp()

    def _hidden_now(self) -> list[str]:
        """Files that git does not look at."""
        rows = self.git("ls-files", "-v", "-z").split("\0")
        return [row[2:] for row in rows if row[:1].islower() or row[:1] == "S"]

    def _stamp(self) -> tuple[int, ...]:
        """Another one: the index was written since."""
        try:
            seen = self._index.lstat()
        except FileNotFoundError:
            return ()
        return (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)

    def _differs(self) -> list[str]:
        commit, branch, entries = self._look()
        moved = [f"HEAD is at {commit} of {branch}"] if (commit, branch) != (self._commit, self._branch) else []
        return moved + entries

    def _look(self) -> tuple[str, str, list[str]]:
        entries = self.git(*_STATUS).split("\0")
        heads = dict(line[2:].split(" ", 1) for line in entries if line.startswith("# "))
        branch = heads.get("branch.head", "")
        return heads.get("branch.oid", ""), "" if branch == "(detached)" else branch, [e for e in entries if e and not e.startswith("# ")]

    def advance(self, commit: str) -> None:
        """The branch goes on to `commit`, whose files it has then. Raises as `clean`."""
        self._commit = commit
        self.clean()

    def git(self, *words: str, stdin: str = "") -> str:
        """What git prints, which reads `stdin`. Raises ToolMissing, ToolFailed."""
        try:
            done = subprocess.run(
                [*_GIT, *words],
                cwd=self._root,
                env=self._environ,
                input=os.fsencode(stdin),
                capture_output=True,
                timeout=DEADLINE_S,
                check=False,
            )
        except FileNotFoundError:
            raise ToolMissing("no program", on="git", hint="install git") from None
        except subprocess.TimeoutExpired:
            raise ToolFailed("git took too long", on=words[0], why=f"more than {DEADLINE_S:.0f} s") from None
        if done.returncode:
            raise ToolFailed("git failed", on=words[0], why=done.stderr.decode("utf-8", "backslashreplace").strip()[:300])
        return os.fsdecode(done.stdout)
