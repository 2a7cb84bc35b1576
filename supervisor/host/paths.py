"""Where everything lies. Standard library only: `status` and completion import this."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

# Paths
# -----


MAX_SOCKET_PATH = 100
"""A UNIX socket's path holds 107 bytes on Linux and 103 on macOS; tmux adds nothing, our longest name is `agents/agents.sock`."""
AGENTS = "agents"
FAR = Path("/tmp")
"""Where sockets lie for which the state's path is too long. Not `$TMPDIR`: cron's is not that of a person's shell, and both mean the same
supervisor."""
FAR_PREFIX = f"nightcrew-{os.getuid()}-"
"""Of the names of the directories there."""

ATTEMPT, SET_UP = "t", "s"
"""Letters in the names of temporary directories there, see `Home.short_tmp`."""


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory of one user, `$XDG_STATE_HOME/nightcrew` or `NIGHTCREW_HOME`."""

    root: Path

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.root / "ledger.db"

    @property
    def archive(self) -> Path:
        """Runs that ended long ago: a file of the same tables as the ledger."""
        return self.root / "archive.db"

    @property
    def runs(self) -> Path:
        """Records: under it one directory a run."""
        return self.root / "runs"

    @property
    def boot(self) -> Path:
        """The boot of the machine in which a supervisor ran last."""
        return self.root / "boot"

    @property
    def log(self) -> Path:
        """What the daemon says while no terminal listens."""
        return self.root / "daemon.log"

    @property
    def worktrees(self) -> Path:
        """Under it one directory a project."""
        return self.root / "worktrees"

    @property
    def locks(self) -> Path:
        """Lock files, one a repository."""
        return self.root / "locks"

    @property
    def run_dir(self) -> Path:
        """Sockets and the locks beside them; in `FAR` when the state's path is too long for a socket."""
        near = self.root / "run"
        if len(os.fsencode(near / AGENTS / "agents.sock")) <= MAX_SOCKET_PATH:
            return near
        import hashlib  # `statusline` has no time for it, and rarely needs it

        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return FAR / f"{FAR_PREFIX}{name}"

    @property
    def tmux_socket(self) -> Path:
        """The private tmux server's socket."""
        return self.run_dir / "tmux.sock"

    @property
    def daemon_socket(self) -> Path:
        """Where the daemon answers the command line."""
        return self.run_dir / "daemon.sock"

    @property
    def hint_socket(self) -> Path:
        """Datagrams `task:epoch` from runners whose attempt ended."""
        return self.run_dir / "hints.sock"

    @property
    def agents_socket(self) -> Path:
        """Where the daemon answers agents, each by its token. It has a directory of its own: a sandbox shows that one, and with it the
        socket that a later supervisor makes there."""
        return self.run_dir / AGENTS / "agents.sock"

    @property
    def gateway_socket(self) -> Path:
        """The gateway for who has no network; the same as its port on 127.0.0.1."""
        return self.run_dir / "gateway.sock"

    @property
    def gateway_record(self) -> Path:
        """Who the gateway is and where it listens; written when it is ready."""
        return self.root / "gateway.json"

    @property
    def gateway_lock(self) -> Path:
        """Held by the one gateway of this user for as long as it lives."""
        return self.root / "gateway.lock"

    @property
    def gateway_account(self) -> Path:
        """Every request and what it took."""
        return self.root / "gateway.db"

    @property
    def answers(self) -> Path:
        """Answers of models that are kept for the same request: a file each."""
        return self.root / "answers"

    @property
    def engines(self) -> Path:
        """What is known of inference engines, and their logs."""
        return self.root / "engines"

    @property
    def gateway_log(self) -> Path:
        """What the gateway says; no secret gets into it."""
        return self.root / "gateway.log"

    @property
    def web_record(self) -> Path:
        """The page's secret (0600), and who serves it where."""
        return self.root / "web.json"

    @property
    def web_lock(self) -> Path:
        """Held by the one server of the page for as long as it lives."""
        return self.root / "web.lock"

    @property
    def recordings(self) -> Path:
        """Bodies of requests and answers, when recording is on."""
        return self.root / "recordings"

    @property
    def quotas(self) -> Path:
        """What is left of each quota."""
        return self.root / "quotas.json"

    @property
    def notices(self) -> Path:
        """What a person was told, and what waits to be told."""
        return self.root / "notices.json"

    @property
    def telemetry(self) -> Path:
        """How far the exporter of spans has come."""
        return self.root / "telemetry.json"

    @property
    def telemetry_lock(self) -> Path:
        """Held by the one exporter of this user for as long as it lives."""
        return self.root / "telemetry.lock"

    @property
    def notices_here(self) -> Path:
        """The same of what is told on this machine."""
        return self.root / "notices-here.json"

    @property
    def handed(self) -> Path:
        """Addresses for messages, from the verb that starts a supervisor to that supervisor."""
        return self.root / "handed.json"

    @property
    def prices(self) -> Path:
        """The price table that the daemon writes for the gateway."""
        return self.root / "prices.json"

    @property
    def secret(self) -> Path:
        """What attempt tokens are derived from (0600)."""
        return self.root / "secret"

    @property
    def metrics_token(self) -> Path:
        """What a scraper of the metrics sends (0600); while there is none, only the user's own programs see them."""
        return self.root / "metrics.token"

    @property
    def audit(self) -> Path:
        """Who was refused, and which keys came and went: records that are chained, see `nightcrew audit verify`."""
        return self.root / "audit.jsonl"

    @property
    def bin(self) -> Path:
        """Programs of ours that were compiled here; agents see it, read-only."""
        return self.root / "bin"

    @property
    def keys(self) -> Path:
        """One file a provider's key (0600 in a 0700 directory)."""
        return self.root / "keys"

    @property
    def lock(self) -> Path:
        """Names the daemon's pid. The lock itself is on its directory, the state, which lives as long as what it protects."""
        return self.root / "daemon.lock"

    @property
    def sentinel(self) -> Path:
        """While it exists everything stands still: `nightcrew stop-all`."""
        return self.root / "stopped"

    def project(self, project: str) -> Path:
        """What agents of one repository share: `memory/`, `mail/` and what belongs to them."""
        return self.root / "projects" / project

    def memory(self, project: str) -> Path:
        """The files that the agents of a repository read, and that a person edits; every sandbox shows it, read-only."""
        return self.project(project) / "memory"

    def conflicts(self, project: str) -> Path:
        """What is known of how the results of a repository stand to each other, and what was told of it."""
        return self.project(project) / "conflicts.json"

    def same_path(self, project: str) -> Path:
        """Where a sandbox shows the worktree of an attempt that asks for the same path as others of its repository; outside it is empty."""
        return self.root / "ws" / project

    def attempt(self, task: str, epoch: int) -> Path:
        """`runs/<run>/<slug>/<epoch>`: the records of one attempt."""
        return self.root / "runs" / task / str(epoch)

    def short_tmp_prefix(self, letter: str) -> str:
        """Return the prefix of the directories' names that `short_tmp` gives for this state directory."""
        return f"nightcrew-{letter}{_digest(f'{os.getuid()}:{self.root}')}"

    def short_tmp(self, place: Path, letter: str = ATTEMPT) -> Path:
        """The `TMPDIR` of what works without a sandbox and keeps its records, or files, at `place`. It has 40 bytes, so that the path of a
        socket in it fits into the 107 that the kernel takes."""
        return FAR / f"{self.short_tmp_prefix(letter)}{_digest(str(place))}"


def _digest(text: str) -> str:
    import hashlib  # as in `run_dir`

    return hashlib.sha256(os.fsencode(text)).hexdigest()[:12]


def home() -> Home:
    """The state directory that the environment names."""
    if override := os.environ.get("NIGHTCREW_HOME"):
        return Home(Path(override).absolute())
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Home(Path(base).absolute() / "nightcrew")


# Places
# ------
# Where a person's own files lie. Standard library only: completion imports this.


_KIND_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]{0,31})\.toml")


def settings_file() -> Path:
    """The settings file, whether or not it exists. `NIGHTCREW_CONFIG` overrides."""
    if override := os.environ.get("NIGHTCREW_CONFIG"):
        return Path(override)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nightcrew" / "config.toml"


def kind_file(name: str) -> Path | None:
    """The file of one kind that a person describes; None if there is none."""
    file = settings_file().parent / "kinds" / f"{name}.toml"
    return file if _KIND_FILE.fullmatch(file.name) and "/" not in name and os.path.lexists(file) else None


def kind_files() -> dict[str, Path]:
    """The kinds of agent that a person describes, by name: `kinds/NAME.toml` beside the settings. A file with another name is none."""
    try:
        files = list((settings_file().parent / "kinds").iterdir())
    except OSError:
        return {}
    return {found[1]: file for file in files if (found := _KIND_FILE.fullmatch(file.name))}
