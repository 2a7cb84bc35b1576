"""What is asked of a host through `gh api` or `glab api`, what its JSON means, and the door to both programs.

The REST interfaces are used and not the verbs (`gh pr create`, `glab mr create`): their JSON is versioned by the hosts, they need no
repository around them, take a body from the standard input, and are the same in old versions of the tools.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from supervisor.features.pull_requests.remarks import Remark
from supervisor.features.pull_requests.rules import RemoteUrl, State, Tool, scrubbed
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.errors import HostError, NeedsHuman, NotFound, Refused, TimedOut, ToolFailed, ToolMissing, last_line, one_line
from supervisor.kernel.format import duration

PAGE = 100
PAGES_MAX = 5
"""Pages that are read of one list; a pull request with more than 500 comments is nothing for an agent."""
_DRAFT = "Draft: "
_DEVELOPER = 30
"""GitLab's number of the role that may push."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `body` goes as JSON; None: there is none."""

    path: str
    method: str = "GET"
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A pull request as its host knows it."""

    number: int
    link: str
    state: State
    draft: bool
    branch: str
    base: str
    head: str
    """The commit that it is at."""
    title: str
    body: str
    node: str = ""
    """GitHub's other name for it."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list to read page by page. `within`: the key of the answer that holds it; empty: the answer is the list."""

    kind: str
    path: str
    within: str = ""

    def page(self, number: int) -> Request:
        """The pages count from 1."""
        return Request(f"{self.path}{'&' if '?' in self.path else '?'}per_page={PAGE}&page={number}")


Lists = Mapping[str, Sequence[Mapping[str, Any]]]
"""By its kind, what such a list holds."""


def newest(found: Sequence[Found], number: int) -> Found | None:
    """Of those of one branch: one that is open, else the one that we know as `number`; the newest of several."""
    ordered = sorted(found, key=lambda one: one.number, reverse=True)
    known = [one for one in ordered if one.number == number]
    return next(iter([*(one for one in ordered if one.state is State.OPEN), *known]), None)


class GitHub:
    """Of one repository on a host of GitHub."""

    tool = Tool.GH

    def __init__(self, url: RemoteUrl) -> None:
        self.host = url.web_host
        self.owner = url.name.partition("/")[0]
        self.base = f"repos/{quote(url.name, safe='/')}"

    def search(self, branch: str) -> Request:
        """Of its own branch, whatever their state."""
        return Request(f"{self.base}/pulls?head={quote(f'{self.owner}:{branch}', safe='')}&state=all&per_page={PAGE}")

    def create(self, branch: str, base: str, title: str, body: str, *, draft: bool) -> Request:
        return Request(f"{self.base}/pulls", "POST", {"title": title, "head": branch, "base": base, "body": body, "draft": draft})

    def update(self, found: Found, body: str) -> Request:
        return Request(f"{self.base}/pulls/{found.number}", "PATCH", {"body": body})

    def ready(self, found: Found) -> Request:
        """Out of draft; the one thing that only GitHub's other interface can."""
        query = "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { isDraft } } }"
        return Request("graphql", "POST", {"query": query, "variables": {"id": found.node}})

    def read(self, shape: Any) -> Found:
        """One, of its JSON. Raises ToolFailed."""
        try:
            state = State.MERGED if shape.get("merged_at") else State(shape["state"])
            head, base = shape["head"], shape["base"]
            return Found(
                int(shape["number"]), str(shape["html_url"]), state, bool(shape.get("draft")), str(head["ref"]), str(base["ref"]),
                str(head["sha"]), str(shape["title"]), str(shape.get("body") or ""), str(shape.get("node_id") or ""),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _odd(self.tool, error) from error

    def lists(self, found: Found) -> tuple[Listed, ...]:
        """Where its remarks are."""
        pull, commit = f"{self.base}/pulls/{found.number}", f"{self.base}/commits/{quote(found.head, safe='')}"
        return (
            Listed("review", f"{pull}/reviews"), Listed("line", f"{pull}/comments"),
            Listed("comment", f"{self.base}/issues/{found.number}/comments"), Listed("check", f"{commit}/check-runs", "check_runs"),
            Listed("status", f"{commit}/status", "statuses"),
        )  # fmt: skip

    def remarks(self, lists: Lists) -> list[Remark]:
        """What they hold: nothing of a check that did not fail, nor of a review without words. Raises ToolFailed."""
        return _read(self.tool, (one for kind, shapes in lists.items() for shape in shapes for one in _github(kind, shape)))


def _github(kind: str, shape: Mapping[str, Any]) -> Iterator[Remark]:
    key, link = f"{kind}/{int(shape['id'])}", str(shape.get("html_url") or "")
    if kind == "check":
        if shape.get("conclusion") in ("failure", "timed_out", "action_required", "startup_failure"):
            output = shape.get("output") or {}
            words = [
                f"{shape['name']}: {shape['conclusion']}",
                *(str(output[name]) for name in ("title", "summary", "text") if output.get(name)),
            ]
            yield Remark(key, "failed check", "", "\n".join(words), link=link, at=str(shape.get("completed_at") or ""))
        return
    if kind == "status":
        if shape.get("state") in ("failure", "error"):
            words = [f"{shape['context']}: {shape['state']}", str(shape.get("description") or "")]
            at = str(shape.get("updated_at") or "")
            yield Remark(key, "failed check", "", "\n".join(words), link=str(shape.get("target_url") or ""), at=at)
        return
    text = str(shape.get("body") or "").strip()
    if kind == "review" and shape.get("state") in ("PENDING", "DISMISSED"):
        return
    if kind == "review" and not text and shape.get("state") == "CHANGES_REQUESTED":
        text = "(asks for changes)"
    line = shape.get("line") or shape.get("original_line")
    place = f"{shape['path']}{f':{line}' if line else ''}" if kind == "line" else ""
    said = {"review": "review", "line": "comment", "comment": "comment"}[kind]
    insider = shape.get("author_association") in ("OWNER", "MEMBER", "COLLABORATOR")
    at = str(shape.get("submitted_at") or shape.get("created_at") or "")
    if text:
        yield Remark(key, said, str((shape.get("user") or {}).get("login") or "somebody"), text, place, link, at, insider)


class GitLab:
    """Of one project on a host of GitLab."""

    tool = Tool.GLAB

    def __init__(self, url: RemoteUrl) -> None:
        self.host = url.web_host
        self.base = f"projects/{quote(url.name, safe='')}"

    def search(self, branch: str) -> Request:
        """Of its own branch, whatever their state."""
        return Request(f"{self.base}/merge_requests?source_branch={quote(branch, safe='')}&state=all&per_page={PAGE}")

    def create(self, branch: str, base: str, title: str, body: str, *, draft: bool) -> Request:
        words = f"{_DRAFT if draft else ''}{title}"
        return Request(
            f"{self.base}/merge_requests", "POST",
            {"source_branch": branch, "target_branch": base, "title": words, "description": body},
        )  # fmt: skip

    def update(self, found: Found, body: str) -> Request:
        return Request(f"{self.base}/merge_requests/{found.number}", "PUT", {"description": body})

    def ready(self, found: Found) -> Request:
        """Out of draft: that is a mark in its title."""
        title = found.title
        for mark in (_DRAFT, "[Draft] ", "(Draft) "):
            title = title.removeprefix(mark)
        return Request(f"{self.base}/merge_requests/{found.number}", "PUT", {"title": title})

    def read(self, shape: Any) -> Found:
        """One, of its JSON. Raises ToolFailed."""
        try:
            said = str(shape["state"])
            state = {"opened": State.OPEN, "merged": State.MERGED, "closed": State.CLOSED, "locked": State.OPEN}[said]
            return Found(
                int(shape["iid"]), str(shape["web_url"]), state, bool(shape.get("draft", shape.get("work_in_progress"))),
                str(shape["source_branch"]), str(shape["target_branch"]), str(shape.get("sha") or ""), str(shape["title"]),
                str(shape.get("description") or ""),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _odd(self.tool, error) from error

    def lists(self, found: Found) -> tuple[Listed, ...]:
        """Where its remarks are; who may write to the project comes first."""
        return (
            Listed("member", f"{self.base}/members/all"), Listed("note", f"{self.base}/merge_requests/{found.number}/discussions"),
            Listed("status", f"{self.base}/repository/commits/{quote(found.head, safe='')}/statuses"),
        )  # fmt: skip

    def remarks(self, lists: Lists) -> list[Remark]:
        """As `GitHub.remarks`; nothing that is resolved, and none of the host's own words. Raises ToolFailed."""
        return _read(self.tool, _gitlab(lists))


def _gitlab(lists: Lists) -> Iterator[Remark]:
    members = {str(one["username"]) for one in lists["member"] if int(one["access_level"]) >= _DEVELOPER}
    yield from (remark for shape in lists["note"] for note in shape["notes"] for remark in _gitlab_note(note, members))
    yield from (remark for shape in lists["status"] for remark in _gitlab_status(shape))


def _gitlab_note(note: Mapping[str, Any], members: Collection[str]) -> Iterator[Remark]:
    text = str(note.get("body") or "").strip()
    if note.get("system") or note.get("resolved") or not text:
        return
    at, author = note.get("position") or {}, str((note.get("author") or {}).get("username") or "somebody")
    path, line = at.get("new_path") or at.get("old_path") or "", at.get("new_line") or at.get("old_line")
    place = f"{path}{f':{line}' if line else ''}"
    yield Remark(f"note/{int(note['id'])}", "comment", author, text, place, "", str(note.get("created_at") or ""), author in members)


def _gitlab_status(shape: Mapping[str, Any]) -> Iterator[Remark]:
    if shape["status"] == "failed" and not shape.get("allow_failure"):
        words = [f"{shape['name']}: failed", str(shape.get("description") or "")]
        at = str(shape.get("finished_at") or shape.get("created_at") or "")
        yield Remark(f"status/{int(shape['id'])}", "failed check", "", "\n".join(words), link=str(shape.get("target_url") or ""), at=at)


def _read(tool: Tool, remarks: Iterator[Remark]) -> list[Remark]:
    try:
        return list(remarks)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _odd(tool, error) from error


Forge = GitHub | GitLab


def _odd(tool: Tool, error: Exception) -> ToolFailed:
    return ToolFailed(
        f"{tool} answered in a form that nightcrew does not know", why=repr(error), kept="everything", hint=f"{tool} --version"
    )


# Command lines
# -------------
# The door to `gh` and `glab`: one call of a host's REST interface with the person's own login.
#
# They are started with words and no shell, in an empty directory of ours, so that no repository and no configuration of one bears on
# them; what is sent goes through the standard input. Which host is asked is said each time.


ANSWER_S = 60.0
ANSWER_MAX = 16 * 2**20
"""Bytes of one answer."""
WORDS_MAX = 600
_LOGIN = 4
"""gh's exit status where it has no login."""
_QUIET = {
    "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GH_PAGER": "cat", "GLAB_PAGER": "cat", "NO_PROMPT": "1", "NO_COLOR": "1",
    "CLICOLOR": "0", "GLAB_CHECK_UPDATE": "false", "GLAB_SEND_TELEMETRY": "0",
}  # fmt: skip
_LOUD = ("GH_DEBUG", "DEBUG", "GH_FORCE_TTY", "GH_REPO", "GITLAB_REPO")
"""Variables that make them say what they send, or mean another repository."""


def there(tool: Tool, environ: Mapping[str, str]) -> bool:
    """Whether it is on the person's PATH."""
    return shutil.which(tool, path=environ.get("PATH")) is not None


def knows(tool: Tool, host: str, environ: Mapping[str, str], folder: Path) -> bool:
    """Whether the person is logged in to a host with it."""
    return _run(tool, ("auth", "status", "--hostname", host), b"", environ, folder)[0] == 0


def folder(where: Home) -> Path:
    """The empty directory in which they run."""
    return where.root / "git" / "empty"


def door(tool: Tool, url: RemoteUrl, environ: Mapping[str, str], where: Home) -> ForgeTool | None:
    """The door to the host of a repository by one of them; None for a link."""
    match tool:
        case Tool.GH:
            return ForgeTool(GitHub(url), environ, folder(where))
        case Tool.GLAB:
            return ForgeTool(GitLab(url), environ, folder(where))
        case Tool.LINK:
            return None


class ForgeTool:
    """Calls for one repository on one host."""

    def __init__(self, forge: Forge, environ: Mapping[str, str], folder: Path) -> None:
        """`environ`: of the person's shell. `folder`: a directory of ours that stays empty."""
        self.forge = forge
        self._environ = environ
        self._folder = folder

    def call(self, request: Request) -> Any:
        """The JSON that the host answers.

        Raises NeedsHuman where nobody is logged in, NotFound, Refused where the host declines (its words), TimedOut, ToolFailed.
        """
        sent = b"" if request.body is None else json.dumps(request.body).encode()
        words = ["api", "--hostname", self.forge.host, "--method", request.method]
        words += ["--header", "Content-Type: application/json", "--input", "-"] if request.body is not None else []
        code, out, err = _run(self.forge.tool, (*words, request.path), sent, self._environ, self._folder)
        if code != 0:
            raise self._error(code, out, err)
        if len(out) > ANSWER_MAX:
            raise ToolFailed("the answer is too long", on=request.path, why=f"more than {ANSWER_MAX} bytes")
        try:
            return json.loads(out)
        except (ValueError, RecursionError) as error:
            raise ToolFailed(f"{self.forge.tool} did not answer with JSON", why=_words(last_line(err)) or str(error)) from error

    def _error(self, code: int, out: bytes, err: str) -> HostError | NeedsHuman | NotFound | Refused:
        tool, host = self.forge.tool, self.forge.host
        lines = [line.strip() for line in err.splitlines() if line.strip()][:3]
        said = _words("; ".join(dict.fromkeys([*lines, *_reasons(out)])) or f"{tool} exited with {code}")
        on, kept, text = f"{host} {self.forge.base}", "everything", f"{err}\n{said}".lower()
        if code == _LOGIN or "http 401" in text or "auth login" in text:
            return NeedsHuman(f"{tool} is not logged in", on=host, why=said, kept=kept, hint=f"{tool} auth login --hostname {host}")
        if "rate limit" in text or "http 429" in text:
            return ToolFailed("the host takes no more calls for now", on=on, why=said, kept=kept, hint="repeat the command later")
        if "http 404" in text:
            return NotFound(
                "the host knows no such repository, or you may not see it", on=on, why=said, kept=kept, hint=f"{tool} auth status"
            )
        if "unknown command" in text or "unknown flag" in text:
            return ToolMissing(f"{tool} is too old", why=said, kept=kept, hint=f"install a newer {tool}, or say --with link")
        if "(http 4" in text:
            return Refused("the host declined", on=on, why=said, kept=kept, hint="what it says has to be met; then repeat the command")
        return ToolFailed(f"{tool} failed", on=on, why=said, kept=kept, hint="look at the network, then repeat the command")


def _run(tool: Tool, words: tuple[str, ...], stdin: bytes, environ: Mapping[str, str], folder: Path) -> tuple[int, bytes, str]:
    env = {name: text for name, text in environ.items() if name not in _LOUD} | _QUIET
    with tempfile.TemporaryFile() as sent, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sent.write(stdin)
        sent.seek(0)
        program = shutil.which(tool, path=environ.get("PATH"))
        if program is None:
            raise ToolMissing(f"{tool} is not installed", kept="everything", hint=f"install {tool}, or say --with link")
        try:
            done = subprocess.run(
                (program, *words), cwd=files.private_dir(folder), env=env, stdin=sent, stdout=out, stderr=err, timeout=ANSWER_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise TimedOut(f"{tool} did not answer", on=words[0], why=f"within {duration(ANSWER_S)}", hint="repeat the command") from None
        except OSError as error:
            raise ToolMissing(f"{tool} did not start", why=error.strerror or str(error)) from error
        return done.returncode, os.pread(out.fileno(), ANSWER_MAX + 1, 0), os.pread(err.fileno(), 2**16, 0).decode("utf-8", "replace")


def _reasons(out: bytes) -> list[str]:
    """What the body of an error says, of both hosts."""
    try:
        shape = json.loads(out[: 2**16])
    except (ValueError, RecursionError):
        return []
    if not isinstance(shape, dict):
        return []
    errors = shape.get("errors")
    found = [one.get("message") if isinstance(one, dict) else one for one in errors] if isinstance(errors, list) else []
    message = shape.get("message")
    listed = message if isinstance(message, list) else [message, shape.get("error")]
    return [str(one) for one in (*listed, *found) if one][:5]


def _words(text: str) -> str:
    return scrubbed(one_line(text))[:WORDS_MAX]
