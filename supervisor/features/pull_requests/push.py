"""The one door by which commits leave this machine: a push of one commit to one branch of one remote, with the person's own git.

Every other git of ours knows no transport and no credentials (`hardening`). A push needs both, and they are the person's: the variables of
the shell in which they gave the command, their own git configuration and the system's, `ssh` and credential helpers. The configuration of
the repository is theirs too, but an agent in tier 0 can write it. So git does not see it: it runs with a git directory of ours, whose
configuration we wrote, and only borrows the repository's objects. Hooks, `remote.*`, `url.*`, `credential.*`, `core.sshCommand` and all
else that is set for the repository alone has no effect. What the person's own configuration includes for this repository
(`includeIf "gitdir:…"`) is looked up there and holds.

A user and a password in a remote's URL reach git by its environment and no argument, and are written nowhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.features.pull_requests import rules
from supervisor.features.pull_requests.rules import PROTOCOLS, RemoteUrl
from supervisor.host import files
from supervisor.kernel.errors import NightcrewError, NotFound, Refused, ToolFailed, ToolHung, ToolMissing, one_line
from supervisor.kernel.format import duration
from worktrees.git import config_text, last_words, wrap_os_errors
from worktrees.repository import Repository

ASK_S = 60.0
"""Deadline of a question to a remote."""
PUSH_S = 1800.0
"""Deadline of a push: a slow line may take long for a large result."""
SAID_MAX = 2**16
"""Bytes of what git says that are read."""
WORDS_MAX = 1200
"""Characters of a remote's own words in an error."""
_TERM_S = 5.0
_PERSONAL = re.compile(r"GIT_(SSH|SSH_COMMAND|SSH_VARIANT|ASKPASS|PROXY_COMMAND|SSL_\w+|HTTP_\w+|CURL_\w+|CONFIG_(GLOBAL|SYSTEM|NOSYSTEM))")
"""Variables of the person's shell that say how git reaches a remote; none that says where it works or what it writes down."""
_FIXED: Mapping[str, str] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.alternateRefsCommand": "",
    "protocol.ext.allow": "never",
    "push.followTags": "false",
    "push.gpgSign": "false",
    "push.pushOption": "",
    "push.recurseSubmodules": "no",
    "push.negotiate": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "color.ui": "false",
}
_UNUSED = re.compile(
    r"core\.(sshcommand|askpass|gitproxy|hookspath)|credential\..*|http\..*|url\..*|ssh\..*|push\..*|hook\..*"
    r"|remote\..*\.(mirror|proxy|receivepack|vcs|push|serveroption)"
)
"""Keys of a repository that would bear on a push."""
_GIT_HINT = "mend it as for a git push of your own, then repeat the command"


@dataclass(frozen=True, slots=True)
class Remote:
    """Where to: a name, or empty for a URL that was typed, and the URL with all that it held."""

    name: str
    url: RemoteUrl


@dataclass(frozen=True, slots=True)
class Pushed:
    """What the remote said to a push that it took: lines without control characters."""

    words: tuple[str, ...]


class Pusher:
    """Git as the person would run it, of one repository and one remote."""

    def __init__(self, repository: Repository, remote: Remote, environ: Mapping[str, str], *, terminal: bool) -> None:
        """`environ`: of the person's shell, before anything of ours changed it. With a `terminal` git and ssh may ask there."""
        self._repository = repository
        named = hashlib.sha256(os.fsencode(f"{repository.common_dir}\0{remote.url.plain}")).hexdigest()[:16]
        self._folder = repository.git.scratch() / "push" / named
        self._name = f"nightcrew-{named}"
        self._environ = {name: text for name, text in environ.items() if not name.startswith("GIT_") or _PERSONAL.fullmatch(name)}
        self._ask = {} if terminal else {"GIT_TERMINAL_PROMPT": "0"}
        self._remote = remote
        self._lay_out()
        self._more = list(self._included())

    def _lay_out(self) -> None:
        """The git directory, one for each repository and URL; the same each time."""
        with wrap_os_errors(self._folder):
            files.private_dir(self._folder)
            (self._folder / "refs").mkdir(exist_ok=True)
            files.atomic_write(self._folder / "HEAD", b"ref: refs/heads/none\n", durable=False)
            files.atomic_write(self._folder / "config", os.fsencode(self._format()), durable=False)

    def _format(self) -> str:
        asked = self._repository.git.run(self._repository.store, "rev-parse", "--show-object-format").text
        entries = [
            "core.bare\ntrue",
            f"core.repositoryformatversion\n{int(asked != 'sha1')}",
            f"remote.{self._name}.url\n{self._remote.url.plain}",
        ]
        return config_text([*entries, *([f"extensions.objectformat\n{asked}"] if asked != "sha1" else [])])

    def _included(self) -> Iterator[tuple[str, str]]:
        """What the person's own configuration sets for this repository and not for any."""
        anywhere = Counter(self._own_settings(self._folder))
        for entry in self._own_settings(self._repository.git_dir):
            if anywhere[entry]:
                anywhere[entry] -= 1
            else:
                yield entry

    def _own_settings(self, git_dir: Path) -> list[tuple[str, str]]:
        done = self._run(("config", "--list", "--show-scope", "-z"), {"GIT_DIR": str(git_dir)}, ASK_S)
        if done.code != 0:
            raise ToolFailed("git cannot read your configuration", why=last_words(done.err), hint="git config --list --show-origin")
        fields = done.out.split("\0")
        found = [entry.partition("\n") for scope, entry in zip(fields[::2], fields[1::2], strict=False) if scope in ("global", "system")]
        return [(key, value if mark else "true") for key, mark, value in found]

    def _settings(self) -> list[tuple[str, str]]:
        url = self._remote.url
        own = [*self._more, *_FIXED.items()]
        if url.scheme in ("http", "https") and url.user:
            own.append(("credential.username", url.user))
        if url.scheme in ("http", "https") and url.password:
            own += [("credential.helper", ""), ("credential.helper", '!printf "password=%s\\n" "$NIGHTCREW_PUSH_PASSWORD"; :')]
        return own

    def target(self) -> RemoteUrl:
        """Where a push goes to, after what the person's own configuration makes of the URL (`url.….insteadOf`). Asks nobody.
        Raises Refused for what is never pushed to."""
        done = self._git(("remote", "get-url", "--push", self._name), ASK_S)
        if done.code != 0:
            raise ToolFailed("git cannot tell where it would push", on=self._remote.url.plain, why=_words(last_words(done.err)))
        return rules.parse(done.out.removesuffix("\n"))

    def tip(self, branch: str) -> str:
        """The commit that a branch of the remote is at now; empty: it has none of that name. Raises as `push`, and Refused when the remote
        has a ref whose name ends like the branch's: git completes the name of what it pushes to."""
        ref = f"refs/heads/{branch}"
        done = self._git(("ls-remote", "--quiet", self._name, ref), ASK_S)
        if done.code != 0:
            raise self._failed("the remote does not answer", done)
        found = {name: commit for commit, mark, name in (line.partition("\t") for line in done.out.splitlines()) if mark}
        if others := sorted(found.keys() - {ref}):
            why = f"the remote has {one_line(others[0])}, which git would take for it"
            raise Refused("not pushed", on=branch, why=why, kept="the remote as it was", hint="--branch OTHER")
        return found.get(ref, "")

    def push(self, commit: str, branch: str, expected: str) -> Pushed:
        """Move a branch of the remote to a commit, when it is at `expected` (empty: when there is none). Nothing else is pushed.

        Raises Refused when the remote declines or the branch is at another commit, ToolFailed for all else.
        """
        ref = f"refs/heads/{branch}"
        done = self._git(
            (
                "push", "--porcelain", "--no-progress", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no",
                "--no-force-if-includes", f"--force-with-lease={ref}:{expected}", self._name, f"{commit}:{ref}",
            ),
            PUSH_S,
        )  # fmt: skip
        if done.code != 0:
            raise self._declined(branch, done)
        return Pushed(tuple(_said_by_remote(done.err)))

    def _declined(self, branch: str, done: _Done) -> NightcrewError:
        row = next((line.split("\t") for line in done.out.splitlines() if line.startswith("!\t")), None)
        if row is None or len(row) != 3:
            return self._failed("the push failed", done)
        said = _words("; ".join((row[2], *_said_by_remote(done.err))))
        where = f"{branch} of {self._remote.url.plain}"
        if "(stale info)" in row[2] or "(fetch first)" in row[2]:
            why = f"somebody else moved that branch meanwhile: {said}"
            return Refused(
                "not pushed", on=where, why=why, kept="that branch, and yours", hint="git fetch, look what is there, then repeat"
            )
        hint = "what the remote says has to be met; --branch pushes to another name"
        return Refused("the remote declined", on=where, why=said, kept="the remote as it was", hint=hint)

    def _failed(self, what: str, done: _Done) -> ToolFailed:
        said = "; ".join((*_said_by_remote(done.err), *_said_by_git(done.err))) or f"git exited with {done.code}"
        return ToolFailed(what, on=self._remote.url.plain, why=_words(said), kept="everything", hint=_hint(done.err))

    def _git(self, argv: Sequence[str], deadline_s: float) -> _Done:
        common = self._repository.common_dir
        env = {"GIT_DIR": str(self._folder), "GIT_OBJECT_DIRECTORY": str(common / "objects")}
        if (common / "shallow").is_file():
            env["GIT_SHALLOW_FILE"] = str(common / "shallow")
        if self._remote.url.password:
            env["NIGHTCREW_PUSH_PASSWORD"] = self._remote.url.password
        return self._run(argv, {**env, **_in_environment(self._settings())}, deadline_s)

    def _run(self, argv: Sequence[str], more: Mapping[str, str], deadline_s: float) -> _Done:
        """Its output goes to files: what it leaves behind, as an ssh that others share, may keep a pipe open for long."""
        env = {
            **self._environ, "GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS), "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C.UTF-8", **self._ask, **more,
        }  # fmt: skip
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(
                    ("git", "--no-pager", *argv), cwd=self._folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
                )
            except OSError as error:
                raise ToolMissing("git did not start", why=error.strerror or str(error), hint="install git") from error
            _wait(process, argv[0], self._remote.url.plain, deadline_s)
            return _Done(process.returncode, os.fsdecode(_read(out.fileno())), _read(err.fileno()).decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class _Done:
    code: int
    out: str
    err: str


def _wait(process: subprocess.Popen[bytes], verb: str, where: str, deadline_s: float) -> None:
    try:
        process.wait(deadline_s)
    except subprocess.TimeoutExpired:
        raise ToolHung(
            f"git {verb} was stopped", on=where, why=f"it took longer than {duration(deadline_s)}", kept="everything", hint="try again"
        ) from None
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_TERM_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _read(handle: int) -> bytes:
    """The last SAID_MAX bytes of stderr or stdout."""
    size = os.fstat(handle).st_size
    return os.pread(handle, SAID_MAX, max(0, size - SAID_MAX))


def _in_environment(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    listed = list(pairs)
    shape = {"GIT_CONFIG_COUNT": str(len(listed))}
    for number, (key, value) in enumerate(listed):
        shape |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return shape


def _said_by_remote(err: str) -> Iterator[str]:
    for line in err.splitlines():
        if line.startswith("remote:") and (words := line.removeprefix("remote:").strip()):
            yield _words(words)


def _said_by_git(err: str) -> list[str]:
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return [line for line in lines if not line.startswith(_ADVICE)][-4:]


def _words(text: str) -> str:
    shown = rules.scrubbed(one_line(text))
    return shown if len(shown) <= WORDS_MAX else f"{shown[:WORDS_MAX]}…"


_ADVICE = ("remote:", "hint:", "To ", "Please make sure you have", "and the repository exists")
_HINTS = (
    (("could not read Username", "could not read Password", "Authentication failed", "Invalid username", "HTTP 401"),
     "have git log in there once (git ls-remote URL in a terminal), or set up a credential helper, in your own configuration"),
    (("Permission denied (publickey", "Host key verification failed"), "ssh to that host once; the key must be in your ssh-agent"),
    (("Could not resolve host", "Could not resolve hostname", "Failed to connect", "Connection refused", "Network is unreachable"),
     "look at the network, then repeat the command"),
    (("not found", "does not appear to be a git repository", "does not exist"), "git remote -v; is the URL right, and may you push there?"),
)  # fmt: skip


def _hint(err: str) -> str:
    return next((hint for marks, hint in _HINTS if any(mark in err for mark in marks)), _GIT_HINT)


def unused(repository: Repository) -> tuple[str, ...]:
    """What is set for the repository alone and would bear on a push, which therefore has no effect: keys, and its hook."""
    found = {name for name in repository.git.configured(repository.store) if _UNUSED.fullmatch(name)}
    hook = (repository.common_dir / "hooks" / "pre-push").is_file()
    return (*sorted(found), *(["its hook pre-push"] if hook else []))


def configured(repository: Repository) -> dict[str, list[str]]:
    """Each key of the repository's own configuration with its values: data, of which nothing is run."""
    listed = repository.git.run(repository.store, "config", "--local", "--list", "-z").text
    found: dict[str, list[str]] = {}
    for entry in filter(None, listed.split("\0")):
        key, _, value = entry.partition("\n")
        found.setdefault(key, []).append(value)
    return found


def remote_of(repository: Repository, base: str, name: str) -> Remote:
    """The remote `name`; when that is empty the one that the branch `base` tracks, else `origin`, else the only one.
    Raises NotFound, and Refused for one with several URLs or one that is never pushed to."""
    settings = configured(repository)
    there = sorted({key.split(".", 1)[1].rpartition(".")[0] for key in settings if key.startswith("remote.") and key.endswith(".url")})
    tracked = settings.get(f"branch.{base}.remote", [""])[-1]
    chosen = name or next((one for one in (tracked, "origin") if one in there), there[0] if len(there) == 1 else "")
    if chosen not in there:
        why = f"there are {', '.join(map(one_line, there))}" if there else "the repository has none"
        hint = "name one with --remote" if there else "git remote add origin URL"
        raise NotFound("no remote to push to", on=one_line(chosen), why=why, kept="everything", hint=hint)
    urls = settings.get(f"remote.{chosen}.pushurl") or settings[f"remote.{chosen}.url"]
    if len(urls) != 1:
        raise Refused(
            "will not push there", on=chosen, why="the remote has several URLs", kept="everything", hint="name another with --remote"
        )
    return Remote(chosen, rules.parse(urls[0]))


def base_on_remote(repository: Repository, base: str) -> str:
    """What the remote calls the branch that `base` tracks; `base` itself where it tracks none."""
    merge = configured(repository).get(f"branch.{base}.merge", [""])[-1]
    return merge.removeprefix("refs/heads/") or base


def checked_branch(repository: Repository, branch: str) -> str:
    """A name for a branch on a remote, typed by a person. Raises Refused for one that git does not take."""
    ref = f"refs/heads/{branch}"
    bad = not branch.isprintable() or branch.startswith(("-", "refs/")) or branch == "HEAD"
    if bad or repository.git.run(repository.store, "check-ref-format", ref, accept=(0, 1)).code != 0:
        raise Refused("not the name of a branch", on=one_line(branch), kept="everything", hint="--branch NAME")
    return branch
