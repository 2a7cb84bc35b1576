"""`gh` and `glab` as recorded: `api` and `auth status`, with the JSON, words and exit statuses of the real ones; what the host knows is
in a file. FORGE_MODE has them fail: `login`, `bad-login`, `limit`, `offline`, `old`, `noise`."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

STATE, LOG = Path(os.environ["FORGE_STATE"]), Path(os.environ["FORGE_LOG"])
NO_LOGIN = """To get started with GitHub CLI, please run:  gh auth login
Alternatively, populate the GH_TOKEN environment variable with a GitHub API authentication token.
"""
BAD_LOGIN = "gh: Bad credentials (HTTP 401)\nTry authenticating with:  gh auth login\n"
FAILURES = {
    "login": (4, "", NO_LOGIN),
    "bad-login": (1, '{"message":"Bad credentials","status":"401"}', BAD_LOGIN),
    "limit": (1, '{"message":"API rate limit exceeded for user ID 1."}', "gh: API rate limit exceeded for user ID 1. (HTTP 403)\n"),
    "offline": (1, "", "error connecting to api.github.com\ncheck your internet connection or https://githubstatus.com\n"),
    "old": (1, "", "unknown flag: --hostname\n"),
    "noise": (0, "<html>a proxy says \x1b]0;evil\x07</html>", ""),
}


def main() -> int:
    tool, *words = sys.argv[1:]
    with LOG.open("a") as log:
        log.write(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd()}) + "\n")
    mode = os.environ.get("FORGE_MODE", "")
    if words[:2] == ["auth", "status"]:
        return 0 if os.environ.get("FORGE_KNOWS") == tool else 1
    if mode in FAILURES:
        code, out, err = FAILURES[mode]
        sys.stdout.write(out)
        sys.stderr.write(err)
        return code
    assert words[0] == "api" and words[1] == "--hostname"
    method, path = words[words.index("--method") + 1], words[-1]
    body = json.load(sys.stdin) if "--input" in words else None
    with STATE.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        state = json.loads(file.read() or '{"pulls": [], "lists": {}}')
        status, answer = (github if tool == "gh" else gitlab)(state, method, path, body)
        file.truncate(0)
        file.write(json.dumps(state))
    sys.stdout.write(json.dumps(answer))
    if status >= 400:
        sys.stderr.write(f"{tool}: {answer.get('message')} (HTTP {status})\n")
    if "after-create" in mode and method == "POST":
        os.kill(os.getppid(), 9)
    return 0 if status < 400 else 1


def page(state: dict[str, Any], name: str, query: dict[str, list[str]]) -> list[Any]:
    number, size = int(query["page"][0]), int(query["per_page"][0])
    return list(state["lists"].get(name, [])[(number - 1) * size : number * size])


def github(state: dict[str, Any], method: str, path: str, body: Any) -> tuple[int, Any]:
    parts, query = urlsplit(path), parse_qs(urlsplit(path).query)
    if path == "graphql":
        one = next(one for one in state["pulls"] if one["node_id"] == body["variables"]["id"])
        one["draft"] = False
        return 200, {"data": {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": False}}}}
    words = parts.path.split("/")
    owner, repository, rest = words[1], words[2], words[3:]
    if (owner, repository) != ("owner", "repo"):
        return 404, {"message": "Not Found", "status": "404"}
    match rest:
        case ["pulls"] if method == "GET":
            user, _, branch = query["head"][0].partition(":")
            return 200, [one for one in state["pulls"] if user == owner and one["head"]["ref"] == branch]
        case ["pulls"]:
            same = [one for one in state["pulls"] if one["head"]["ref"] == body["head"] and one["state"] == "open"]
            if same:
                said = f"A pull request already exists for {owner}:{body['head']}."
                return 422, {"message": "Validation Failed", "errors": [{"resource": "PullRequest", "code": "custom", "message": said}]}
            number = len(state["pulls"]) + 1
            one = {
                "number": number, "node_id": f"PR_{number}", "html_url": f"https://github.com/owner/repo/pull/{number}", "state": "open",
                "draft": body["draft"], "merged_at": None, "title": body["title"], "body": body["body"],
                "head": {"ref": body["head"], "sha": "c0ffee", "label": f"{owner}:{body['head']}"}, "base": {"ref": body["base"]},
            }  # fmt: skip
            state["pulls"].append(one)
            return 201, one
        case ["pulls", number] if method == "PATCH":
            one = state["pulls"][int(number) - 1]
            one.update(body)
            return 200, one
        case ["commits", _, "check-runs"]:
            found = page(state, "check", query)
            return 200, {"total_count": len(found), "check_runs": found}
        case ["commits", _, "status"]:
            return 200, {"state": "failure", "statuses": page(state, "status", query)}
        case [_, _, name]:
            return 200, page(state, {"reviews": "review"}.get(name, "line" if rest[0] == "pulls" else "comment"), query)
    return 404, {"message": "Not Found"}


def gitlab(state: dict[str, Any], method: str, path: str, body: Any) -> tuple[int, Any]:
    parts, query = urlsplit(path), parse_qs(urlsplit(path).query)
    _, project, *rest = parts.path.split("/")
    if unquote(project) != "owner/repo":
        return 404, {"message": "404 Project Not Found"}
    match rest:
        case ["merge_requests"] if method == "GET":
            return 200, [one for one in state["pulls"] if one["source_branch"] == query["source_branch"][0]]
        case ["merge_requests"]:
            same = [one for one in state["pulls"] if one["source_branch"] == body["source_branch"] and one["state"] == "opened"]
            if same:
                return 409, {"message": [f"Another open merge request already exists for this source branch: !{same[0]['iid']}"]}
            number = len(state["pulls"]) + 1
            one = {
                "id": 100 + number, "iid": number, "web_url": f"https://gitlab.com/owner/repo/-/merge_requests/{number}", "state": "opened",
                "draft": body["title"].startswith("Draft: "), "sha": "c0ffee", **body,
            }  # fmt: skip
            state["pulls"].append(one)
            return 201, one
        case ["merge_requests", number] if method == "PUT":
            one = state["pulls"][int(number) - 1]
            one.update(body)
            one["draft"] = one["title"].startswith("Draft: ")
            return 200, one
        case ["members", "all"]:
            return 200, page(state, "member", query)
        case ["merge_requests", _, "discussions"]:
            return 200, page(state, "note", query)
        case ["repository", "commits", _, "statuses"]:
            return 200, page(state, "status", query)
    return 404, {"message": "404 Not Found"}


if __name__ == "__main__":
    sys.exit(main())
