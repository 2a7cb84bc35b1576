"""A result on its way to a host: what is known of its pull request, and what one push may do. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote, unquote, urlsplit

from supervisor.kernel.errors import Refused, UsageError, one_line

# Rules
# -----


ROUNDS_MAX = 5
"""How often an agent is given what came back from one pull request, unless a person says another number."""


class Tool(StrEnum):
    """What opens a pull request."""

    GH = "gh"
    GLAB = "glab"
    LINK = "link"
    """Nothing: the person follows a link."""


class State(StrEnum):
    """Of a pull request, as its host says."""

    NONE = ""
    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """One branch of one remote that holds the work of a task, and of the tasks that went on with it."""

    id: int
    task: str
    """The newest of them."""
    project: str
    remote: str
    """Its URL, without user and password."""
    branch: str
    base: str
    """What the remote calls the branch that it is to be merged into."""
    intent: str
    """The commit that was last about to be pushed."""
    pushed: str
    """The commit at which our last push left the branch; empty: none ended."""
    tool: Tool
    number: int
    """The host's; 0: none is known."""
    link: str
    state: State
    draft: bool
    rounds: int
    """How often its agent was given what came back."""
    changed: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Push, when the branch is at `expected`; empty: when the remote has none of that name."""

    expected: str


def short_branch(task: str, *, taken: bool) -> str:
    """Return what a remote calls the branch of a task's result: `nightcrew/lint`; with the random part of its run, `nightcrew/lint-k3f9`,
    where another task's result is `taken` there by that name."""
    run, _, name = task.partition("/")
    return f"nightcrew/{name}-{run.rpartition('-')[2]}" if taken else f"nightcrew/{name}"


def lease(known: PullRequest | None, branch: str, there: str, commit: str) -> Lease | None:
    """How a branch that is at `there` on the remote (empty: it has none) may be moved to `commit`; None: it is there.

    Only what we pushed ourselves is ever replaced. A push that was begun and of which nobody knows the end counts as ours when the branch
    is at exactly its commit. Raises Refused.
    """
    if there == commit:
        return None
    ours = {one for one in (known.pushed, known.intent) if one} if known is not None else set()
    if not there or there in ours:
        return Lease(there)
    why = f"the remote has a branch of that name, at {there[:12]}, which is not what we pushed"
    if known is not None and known.pushed:
        why = f"it is at {there[:12]} there, and our last push left it at {known.pushed[:12]}: somebody else pushed to it"
    raise Refused(
        "not pushed", on=branch, why=why, kept="that branch, and the result", hint="git fetch, look what is there; or --branch OTHER"
    )


def refuse_ended(state: State, link: str) -> None:
    """Raises Refused for a pull request that its host has closed or merged."""
    if state in (State.CLOSED, State.MERGED):
        hint = "open it again there, or make another one with --branch OTHER"
        raise Refused("not done", on=link, why=f"that pull request is {state}", kept="the result", hint=hint)


def rounds(text: int | None) -> int:
    """A bound on how often an agent is given what came back. Raises UsageError."""
    if text is not None and not 1 <= text <= 100:
        raise UsageError("not a number of rounds", on=str(text), why="1 to 100 are")
    return ROUNDS_MAX if text is None else text


# Remotes
# -------
# The URLs of remotes: what git may push to, how one is shown without what opens it, and where a person compares two branches. Pure.


PROTOCOLS = ("https", "http", "ssh", "git", "file")
"""What is pushed by; a transport that runs a command of its own (`ext::`) is none of them."""
_SCP = re.compile(r"(?:(?P<user>[^@:/]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+):(?P<path>.+)", re.DOTALL)
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]*(?:@[^/\s@]*)*@")
_SSH_ALIASES = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com", "altssh.bitbucket.org": "bitbucket.org"}
"""Hosts that speak ssh where the port of https is the only open one."""


class Forge(StrEnum):
    """What runs on a host, as far as its name says."""

    GITHUB = "GitHub"
    GITLAB = "GitLab"
    BITBUCKET = "Bitbucket"
    GITEA = "Gitea"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """One URL in its parts. `user` and `password` are as git would send them; neither is shown but the user of ssh."""

    scheme: str
    host: str
    """As the URL has it, without the port; empty: a directory of this machine."""
    port: str
    path: str
    user: str = ""
    password: str = ""
    scp: bool = False
    """Written as `user@host:path`."""

    @property
    def plain(self) -> str:
        """The URL without user and password where they could open something; what is shown, stored and given to git."""
        if not self.host:
            return f"file://{self.path}" if self.scheme == "file" else self.path
        user = f"{self.user}@" if self.user and self.scheme == "ssh" else ""
        if self.scp:
            return f"{user}{self.host}:{self.path}"
        return f"{self.scheme}://{user}{self.host}{f':{self.port}' if self.port else ''}{self.path}"

    @property
    def forge(self) -> Forge:
        """By the name of its host."""
        host = self.web_host
        for mark, forge in _MARKS:
            if mark in host:
                return forge
        return Forge.UNKNOWN

    @property
    def web_host(self) -> str:
        """Where its pages are, with the port of http(s)."""
        host = _SSH_ALIASES.get(self.host.lower(), self.host.lower())
        return f"{host}:{self.port}" if self.port and self.scheme in ("http", "https") else host

    @property
    def name(self) -> str:
        """`owner/repository`, or with the groups of GitLab; empty where there is no such path."""
        words = unquote(self.path).strip("/").removesuffix(".git").strip("/")
        return words if self.host and "/" in words else ""

    @property
    def page(self) -> str:
        """The address of its page; empty: it has none."""
        scheme = "http" if self.scheme == "http" else "https"
        return f"{scheme}://{self.web_host}/{quote(self.name, safe='/')}" if self.name else ""


_MARKS = (
    ("github", Forge.GITHUB), (".ghe.com", Forge.GITHUB), ("gitlab", Forge.GITLAB), ("bitbucket.org", Forge.BITBUCKET),
    ("gitea", Forge.GITEA), ("forgejo", Forge.GITEA), ("codeberg.org", Forge.GITEA),
)  # fmt: skip


def parse(text: str) -> RemoteUrl:
    """A URL as git has it: `https://host/path`, `ssh://user@host/path`, `user@host:path` or a directory. Raises Refused for what runs a
    command, and for what no such URL holds."""
    if not text or not text.isprintable():
        raise _refused(text, "it is empty or holds characters that nobody sees")
    if _HELPER.match(text):
        raise _refused(text, "a transport of its own may run any command")
    if "://" in text:
        return _of_url(text)
    if (match := _SCP.fullmatch(text)) is not None and not text.startswith(("/", ".")):
        user = (match["user"] or "").partition(":")[0]
        return RemoteUrl("ssh", _host(match["host"], text), "", match["path"], user, scp=True)
    if not text.startswith("/"):
        raise _refused(text, "a relative path depends on where git runs")
    return RemoteUrl("", "", "", text)


def _of_url(text: str) -> RemoteUrl:
    try:
        parts = urlsplit(text)
        port = "" if parts.port is None else str(parts.port)
    except ValueError as error:
        raise _refused(text, str(error)) from None
    scheme = parts.scheme.lower().removeprefix("git+").removesuffix("+git")
    if scheme not in PROTOCOLS:
        raise _refused(text, f"only {', '.join(PROTOCOLS)} are pushed to")
    if scheme == "file":
        path = text.partition("://")[2]
        if not path.startswith("/"):
            raise _refused(text, "it names another machine")
        return RemoteUrl("file", "", "", path)
    if parts.query or parts.fragment:
        raise _refused(text, "it has more than a path, which may be a secret")
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{port}") if port else parts.netloc.rpartition("@")[2].removesuffix(":")
    return RemoteUrl(scheme, _host(host, text), port, parts.path, unquote(parts.username or ""), unquote(parts.password or ""))


def _host(host: str, text: str) -> str:
    if not _HOST.fullmatch(host):
        raise _refused(text, "its host is no name")
    return host


def _refused(text: str, why: str) -> Refused:
    hint = "git remote -v, then name another one with --remote"
    return Refused("will not push there", on=scrubbed(one_line(text)), why=why, kept="everything", hint=hint)


def scrubbed(text: str) -> str:
    """`text` without users and passwords in the URLs that it holds."""
    return _USERINFO.sub(r"\1", text)


def compare_url(url: RemoteUrl, base: str, branch: str) -> str:
    """Where a person opens a pull request of `branch` into `base` by hand; empty where the host's name does not say how."""
    page, into, of = url.page, quote(base, safe="/"), quote(branch, safe="/")
    if not page:
        return ""
    match url.forge:
        case Forge.GITHUB:
            return f"{page}/compare/{into}...{of}?expand=1"
        case Forge.GITLAB:
            source, target = quote("merge_request[source_branch]"), quote("merge_request[target_branch]")
            return f"{page}/-/merge_requests/new?{source}={quote(branch, safe='')}&{target}={quote(base, safe='')}"
        case Forge.BITBUCKET:
            return f"{page}/pull-requests/new?source={quote(branch, safe='')}&dest={quote(base, safe='')}&t=1"
        case Forge.GITEA:
            return f"{page}/compare/{into}...{of}"
        case Forge.UNKNOWN:
            return ""
