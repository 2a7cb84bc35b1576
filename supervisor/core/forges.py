"""What is asked of a host through `gh api` or `glab api`, and what its JSON means. Pure: `host.forge_tools` runs them.

The REST interfaces are used and not the verbs (`gh pr create`, `glab mr create`): their JSON is versioned by the hosts, they need no
repository around them, take a body from the standard input, and are the same in old versions of the tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from supervisor.core.errors import ToolFailed
from supervisor.core.pull_requests import State, Tool
from supervisor.core.remotes import RemoteUrl

PAGE = 100
_DRAFT = "Draft: "


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

    def list(self, branch: str) -> Request:
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


class GitLab:
    """Of one project on a host of GitLab."""

    tool = Tool.GLAB

    def __init__(self, url: RemoteUrl) -> None:
        self.host = url.web_host
        self.base = f"projects/{quote(url.name, safe='')}"

    def list(self, branch: str) -> Request:
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


Forge = GitHub | GitLab


def _odd(tool: Tool, error: Exception) -> ToolFailed:
    return ToolFailed(
        f"{tool} answered in a form that nightcrew does not know", why=repr(error), kept="everything", hint=f"{tool} --version"
    )
