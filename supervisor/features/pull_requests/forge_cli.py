"""The door to `gh` and `glab`: one call of a host's REST interface with the person's own login.

They are started with words and no shell, in an empty directory of ours, so that no repository and no configuration of one bears on them;
what is sent goes through the standard input. Which host is asked is said each time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervisor.features.pull_requests.forge_requests import Forge, GitHub, GitLab, Request
from supervisor.features.pull_requests.rules import Tool
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.errors import HostError, NeedsHuman, NotFound, Refused, TimedOut, ToolFailed, ToolMissing, last_line, one_line
from supervisor.kernel.format import duration
from supervisor.kernel.remotes import RemoteUrl, scrubbed

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
