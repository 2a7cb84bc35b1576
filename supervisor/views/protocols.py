"""What the screen and the page are given: somebody who reads, and somebody who acts as the verbs do. It decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from supervisor.store.queries import TaskView
from supervisor.views.crew import Crew

if TYPE_CHECKING:
    from supervisor.results.reviews import Review  # a start has no time for it


class Page(StrEnum):
    """What is shown of the selected task, in the order of the keys 1 to 6."""

    SCREEN = "screen"
    DIFF = "diff"
    LOG = "log"
    TALK = "transcript"
    HISTORY = "history"
    USE = "resources"


@dataclass(frozen=True, slots=True)
class Text:
    """A page: lines in which colours are SGR; all else that steers a terminal may still be in them."""

    lines: Sequence[str]
    mark: str = ""
    """Of what it was made; the same mark means the same lines."""
    ends: bool = False
    """Its end matters, as of a log: it is shown from there, and followed."""


class Reading(Protocol):
    """Looks; called by threads of the screen, one call of each at a time."""

    def crew(self, visible: Collection[str]) -> Crew:
        """The crew now; what was said last of the `visible` tasks alone. Never raises."""

    def page(self, view: TaskView, page: Page, mark: str) -> Text | None:
        """A page of a task, None when it is still as `mark` says. Never raises: what is wrong is on the page."""


class Watched(Reading, Protocol):
    """One who looks for many, and wants to know at once what changed."""

    def stirred(self) -> bool:
        """Whether the crew may be another than at the last look. Costs next to nothing; what it cannot know changes too."""

    def forget(self) -> None:
        """Ask everything anew at the next look: a person just changed something. From any thread."""

    def close(self) -> None:
        """Nobody looks any more, until somebody does."""

    def view(self, task: str) -> TaskView:
        """A task by its full id, also an archived one. Raises NotFound."""

    def result(self, view: TaskView, mark: str) -> tuple[Review, str] | None:
        """What it changed, and of what that was made; None when it is still as `mark` says. Raises NightcrewError."""


class Reviewing(Protocol):
    """What a person says of a result, as `nightcrew review`. Each returns one sentence; all raise NightcrewError. `tip`: the commit that
    the person saw; Refused when it is another by now."""

    def comment(self, task: str, tip: str, path: str, line: int, text: str) -> str: ...

    def drop(self, task: str, number: int) -> str:
        """Remove a comment that waits."""

    def send(self, task: str, more: str) -> str:
        """Give what waits to its agent, as its next prompt."""

    def decide(self, task: str, tip: str, verdict: str, why: str) -> str: ...


@dataclass(frozen=True, slots=True)
class NewTask:
    """What a person filled in."""

    prompt: str
    kind: str
    base: str
    name: str
    repo: str = ""
    """One of `Acts.repositories`; empty: the repository around us."""


class Acts(Protocol):
    """Does what a person asks, as the verb of the same name. Each returns one sentence; all raise NightcrewError."""

    verbs: Mapping[str, str]
    """Every verb with its line of help."""

    def kinds(self) -> Sequence[str]:
        """The kinds of agent that are installed, the usual one first."""

    def repositories(self) -> Sequence[str]:
        """The checkouts in which a task can be started: the one around us, then those in which something was run, the newest first."""

    def merge_question(self, task: str) -> str:
        """Return the question to ask before `take`; it names the branch and the size of the result."""

    def attach(self, view: TaskView) -> str:
        """Into its pane, on this terminal; returns when the person has left it."""

    def run(self, words: Sequence[str]) -> str:
        """`nightcrew WORDS` on this terminal."""

    def send(self, tasks: Sequence[str], line: str) -> str: ...

    def answer(self, task: str, asked: str, *, allow: bool) -> str:
        """`asked`: what the person saw that it asks."""

    def hold(self, tasks: Sequence[str], *, back: bool) -> str:
        """Pause them, or let them go on."""

    def kill(self, tasks: Sequence[str]) -> str: ...

    def retry(self, tasks: Sequence[str]) -> str: ...

    def take(self, task: str) -> str: ...

    def start(self, asked: NewTask) -> str: ...

    def go_on(self, task: str, prompt: str) -> str:
        """More words for an agent that ended, as a task of its own; for one that lives, its next prompt."""


Say = Callable[[str], None]
