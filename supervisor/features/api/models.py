"""What comes to the API and goes from it. What a plan's key may be is checked once more where plans are; this gives it shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from supervisor.config.task_keys import with_keys
from supervisor.config.toml import Strict
from supervisor.features.api.rules import Token
from supervisor.kernel.spec import By, Key
from supervisor.kernel.states import TaskState

ID = r"^[0-9]{4}-[a-z0-9]{4}/[a-z0-9][a-z0-9_-]{0,31}$"
PAGE, PAGE_MAX = 50, 200
WAIT_S, WAIT_MAX = 30.0, 60.0
PATCH_MAX = 4 * 2**20
"""Bytes of a patch in an answer."""
TEXT_MAX = 500_000
Text = Annotated[str, Field(max_length=TEXT_MAX, pattern=r"^[^\x00]*$")]
Word = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Command = Annotated[Text, Field(min_length=1)] | Annotated[list[Text], Field(min_length=1, max_length=1000)]
Span = Annotated[float, Field(ge=0, le=1e9)] | Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?[smhd]$", max_length=32)]
"""Seconds, or text such as `90s`, `30m`, `2h`."""
Amount = Annotated[int, Field(ge=0, le=2**63 - 1)] | Annotated[str, Field(max_length=32)]
"""Bytes, or text such as `2GiB`."""
StateWord = Literal[
    "waiting", "ready", "running", "paused", "parked", "done", "failed", "cancelled", "expired", "skipped", "quarantined",
]  # fmt: skip
assert {*StateWord.__args__} == {*map(str, TaskState)}  # type: ignore[attr-defined]  # noqa: S101 - of a type, once


def _loose(key: Key) -> Any:
    """The type of a key's value; where plans are read it is checked once more."""
    kind: Any = {"s": Span, "B": Amount}.get(key.unit) or (Word if key.type is str else key.type)
    if key.choices:
        kind = Literal[key.choices]
    bounds: dict[str, Any] = {} if key.unit else key.bounds
    return Annotated[kind | None, Field(description=key.help, **bounds)]


@with_keys(lambda key: key.by & By.API, _loose, lambda _: None)
class TaskRequest(Strict):
    """One task. Its keys are those of a plan; what is not said is as in the repository's `nightcrew.toml`."""

    repository: Annotated[Word | None, Field(description="Id or name, of `/api/v1/repositories`; with one it may be left out.")] = None
    base: Annotated[Word | None, Field(description="Branch, tag or commit that it starts from.")] = None
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Its name in ids.")] = "task"
    title: Annotated[Text, Field(max_length=1000)] | None = None
    kind: Annotated[Word | None, Field(description="`shell`, or a kind of agent.")] = None
    command: Annotated[Command | None, Field(description="What to run: a text for the shell, or words.")] = None
    prompt: Annotated[Text | None, Field(description="What an agent is to do.")] = None
    gate: Command | None = None
    task_class: Annotated[Literal["normal", "batch"] | None, Field(alias="class")] = None
    after: Annotated[list[Annotated[str, Field(pattern=ID)]], Field(max_length=1000, description="Ids of tasks that must be done.")] = (
        Field(default_factory=list)
    )
    paths: Annotated[list[Word], Field(max_length=100)] | None = None
    params: Annotated[dict[str, str | int | float | bool], Field(max_length=200, description="Environment variables.")] | None = None
    tags: Annotated[list[Word], Field(max_length=32)] | None = None
    allow: Annotated[list[Word], Field(max_length=200)] | None = None
    network: bool | Annotated[list[Word], Field(min_length=1, max_length=100)] | None = None

    def options(self) -> dict[str, Any]:
        """As `plan.single` takes them."""
        said = self.model_dump(exclude={"repository", "base", "id", "command", "prompt"}, exclude_none=True)
        return {**said, "id": self.id, "kind": self.kind, "after": self.after or None}


class ListQuery(BaseModel):
    """What to list."""

    model_config = ConfigDict(extra="forbid")
    state: StateWord | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_MAX)] = PAGE
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$", description="`next` of the page before.")] | None = None


class WaitQuery(BaseModel):
    """How long to wait."""

    model_config = ConfigDict(extra="forbid")
    timeout: Annotated[float, Field(ge=0, le=WAIT_MAX, allow_inf_nan=False, description="Seconds.")] = WAIT_S


class ResultQuery(BaseModel):
    """Whether with the patch."""

    model_config = ConfigDict(extra="forbid")
    patch: Literal["true", "false"] = "true"


class LogQuery(BaseModel):
    """Which of its streams."""

    model_config = ConfigDict(extra="forbid")
    stream: Literal["stdout", "stderr", "gate"] = "stdout"
    follow: Literal["true", "false"] = "true"


class Nothing(BaseModel):
    """No query."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """Base of what is answered."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Task(Shown):
    """One task, as it is now. Moments are RFC 3339 in UTC."""

    id: str
    run: str
    name: str
    title: str
    repository: str
    kind: str
    state: StateWord
    final: Annotated[bool, Field(description="It will not change by itself any more.")]
    reason: str
    task_class: Annotated[str, Field(alias="class")]
    priority: int
    attempt: Annotated[int, Field(description="Number of its newest attempt; 0 before the first.")]
    submitted: str | None
    started: str | None
    ended: str | None
    end: Annotated[str | None, Field(description="How its newest attempt ended.")]
    cause: str
    branch: str | None


class TaskPage(Shown):
    """The newest first."""

    tasks: list[Task]
    next: Annotated[str | None, Field(description="`cursor` of the next page; null: this was the last.")]


class Cancelled(Shown):
    """What became of it."""

    task: str
    asked: Annotated[bool, Field(description="False: it had ended already.")]


class Result(Shown):
    """What a task left."""

    task: str
    state: StateWord
    branch: str | None
    base: str | None
    tip: Annotated[str | None, Field(description="The commit that holds its work; null: it left none.")]
    commits: Annotated[int, Field(description="How many it made.")]
    stat: Annotated[str, Field(description="As `git diff --stat` prints it.")]
    patch: Annotated[str | None, Field(description="As git prints it, without what is in binary files; null: not asked for, or too large.")]


class Repository(Shown):
    """One that the token reaches."""

    id: str
    name: Annotated[str, Field(description="The name of its directory.")]


class Repositories(Shown):
    """By their ids."""

    repositories: list[Repository]


class Capacity(Shown):
    """How many agents run and wait."""

    slots: int
    living: int
    waiting: int
    predicted_wait_s: Annotated[float | None, Field(description="Of a task that is submitted now; null: nobody knows yet.")]


class WhoAmI(Shown):
    """What a token is."""

    id: str
    name: str
    user: str
    scopes: list[str]
    rate: float
    quota: Annotated[int, Field(description="Tasks in 24 hours; 0: no limit.")]
    left: Annotated[int | None, Field(description="Of the quota now; null without one.")]
    expires: str | None


class Wrong(Shown):
    """One thing that is wrong with a request."""

    field: Annotated[str, Field(description="Its path in the body, or the name of a parameter.")]
    why: str


class Problem(Shown):
    """An error, as RFC 9457 has it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    kept: str = ""
    next: str = ""
    errors: list[Wrong] = []


# Orders
# ------


@dataclass(frozen=True, slots=True)
class Order:
    """A task to be handed over."""

    token: Token
    root: str
    """Of its repository, as the ledger has it."""
    key: str
    """Idempotency key; the same twice is one task."""
    digest: str
    """Of the request."""
    request: TaskRequest
