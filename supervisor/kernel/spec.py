"""What to run: runs and tasks as a plan describes them, checked and free of file syntax."""

from __future__ import annotations

import functools
import keyword
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Flag, auto
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from supervisor.kernel.errors import Refused
from supervisor.kernel.format import many, size
from supervisor.kernel.night import NightOrder
from supervisor.kernel.states import TaskClass

# Keys
# ----
# What a key of a task is: how it is spelled, within which bounds, what it means, and who may give it.
#
# Each field of `TaskSpec` that a person, a project, an agent or a program can give carries a `Key`. The models of plan and project
# file, the
# options of `nightcrew add` and `start`, the task API, the agents' socket, the tools of MCP and the table in docs/plan.md follow from it.


class By(Flag):
    """Where a key may be given, beside one task of a plan."""

    PLAN = auto()
    """`[defaults]` of a plan."""
    PROJECT = auto()
    """`[defaults]` of a project file, and of a plan."""
    ADD = auto()
    """`nightcrew add`."""
    START = auto()
    """`nightcrew start`."""
    API = auto()
    """The task API."""
    AGENT = auto()
    """An agent that adds tasks."""
    TOOL = auto()
    """The tool `add_task` of a person's session."""
    AGENT_TOOL = auto()
    """The tool `add_task` of an agent."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a task."""

    help: str
    by: By
    name: str = ""
    """As a plan spells it; empty: as its field is named."""
    least: float | None = None
    above: float | None = None
    """Like `least`, which it must exceed."""
    most: float | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    """`s`: a duration, `B`: a size, `moment`, or none."""
    metavar: str = ""
    """What stands for a value in the help of a command; empty: as its type says."""
    field: str = ""
    type: Any = str
    """Of its field, without None; the type of one item, of several."""
    many: bool = False
    unset: Any = None
    """What it is where it was not given; None where no value that can be given means the same."""

    @property
    def parameter(self) -> str:
        """The name of a parameter that holds it."""
        return self.field if keyword.iskeyword(self.name) else self.name

    @property
    def bounds(self) -> dict[str, float]:
        """Named as pydantic does."""
        given = {"ge": self.least, "gt": self.above, "le": self.most}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def words(self) -> str:
        """Its type and its bounds, for people."""
        if self.choices:
            return ", ".join(f'`"{choice}"`' for choice in self.choices)
        kind = {"s": "duration", "B": "size", "moment": "moment"}.get(self.unit) or _WORDS[self.type]
        low = f"from {self.least:g}" if self.least else f"above {self.above:g}" if self.above is not None else ""
        return ", ".join(filter(None, (f"list of {kind}s" if self.many else kind, low, f"up to {self.most:.12g}" if self.most else "")))


_WORDS = {int: "number", float: "number", bool: "boolean", str: "text"}


@functools.cache
def of(spec: Any) -> dict[str, Key]:
    """The keys of a dataclass, by the name that a plan has for them."""
    found = {}
    kinds = get_type_hints(spec, include_extras=True)
    for item in fields(spec):
        for key in getattr(kinds[item.name], "__metadata__", ()):
            if isinstance(key, Key):
                made = _of_field(item.name, get_args(kinds[item.name])[0], item.default, key)
                found[made.name] = made
    return found


def _of_field(field: str, kind: Any, default: Any, key: Key) -> Key:
    """`kind` is the field's type: a plain one, one or None, or a tuple of them."""
    plain = next((one for one in get_args(kind) if get_origin(one) is tuple), kind)
    many = get_origin(plain) is tuple
    inner = next((one for one in (plain, *get_args(plain)) if one in _WORDS), str)
    low = default in (None, 0, "") and bool(key.choices or key.least or key.above is not None)
    return replace(key, name=key.name or field, field=field, type=inner, many=many, unset=None if low or default is MISSING else default)


def number(key: Key, value: Any) -> Any:
    """The number that a text is, where the key is one; whatever else stays as it is."""
    if isinstance(value, str) and key.type in (int, float) and not key.unit:
        try:
            return int(value) if value.lstrip("-").isdecimal() else float(value)
        except ValueError:
            return value
    return value


def given_by(spec: Any, by: By) -> dict[str, Key]:
    """The keys that may be given there."""
    return {name: key for name, key in of(spec).items() if key.by & by}


# Spec
# ----
# What to run: tasks and runs as a plan file describes them, checked and free of file syntax. They are stored in the ledger as JSON.


ABSOLUTE_FROM = 1e9
"""Moments from here on are seconds since 1970 (2001 and later); smaller ones are counted from the submission. 31 years fit below."""


SIZES: Final = ("small", "medium", "large")
WORK: Final = ("trivial", "simple", "complex")
"""Weights of a request's work, each stronger than the one before."""
RAISED: Final = "one stronger, after a failed gate"
"""How the reason for a request's weight ends where its task's own weight is a weaker one."""
_ALL = By.PROJECT | By.ADD | By.API | By.AGENT | By.TOOL
_LIMIT = By.PROJECT | By.API | By.AGENT
_OWN = By.PROJECT | By.AGENT


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a plan. A field with a `Key` can be given: to add a key is to add such a field."""

    name: Annotated[str, Key("Its name, for the other verbs.", By.API | By.AGENT, "id")]
    """The plan's `id`: unique within the plan, used by `after` and on the command line."""
    title: Annotated[
        str,
        Key(
            "Any text (default: the command, or the first line of the prompt).",
            By.ADD | By.API | By.AGENT | By.TOOL | By.AGENT_TOOL,
        ),
    ]
    """Any text; shown verbatim (control characters escaped), never executed and never a name."""
    kind: Annotated[
        str,
        Key(
            "shell: works by itself. terminal: owns the pane. Others: kinds ls.",
            By.PROJECT | By.ADD | By.API | By.AGENT,
        ),
    ]
    argv: tuple[str, ...]
    params: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the agent."""
    prompt: str | None = None
    after: tuple[str, ...] = ()
    """Names of tasks of the same plan that must have ended first, and full ids (with a `/`) of tasks that were handed over before."""
    after_any: tuple[str, ...] = ()
    """Those of `after` of which one is enough."""
    after_on: str = "done"
    """`done`: they must be done, or this one is skipped. `finished`: however they ended, it runs."""
    after_memory: tuple[str, ...] = ()
    """Paths in the project's memory at which a note must be first."""
    together: Annotated[str, Key("Tasks of a plan with the same text begin at the same moment.", By(0), most=64)] = ""
    """Tasks of a plan with the same text begin at the same moment, once all of them are up."""
    priority: Annotated[int, Key("Higher starts first, among the tasks of its class.", _ALL, least=0, most=100)] = 50
    preempt: Annotated[bool, Key("When no slot is free, it takes that of a less important agent, which is paused.", By.PLAN)] = False
    """It may take the slot of a less important attempt, which is paused meanwhile."""
    task_class: Annotated[TaskClass, Key("How soon it starts.", _ALL, "class", choices=tuple(map(str, TaskClass)))] = TaskClass.NORMAL
    timeout_s: Annotated[
        float,
        Key('Stop it after this long: "90s", "30m", "2h".', _ALL | By.AGENT_TOOL, "timeout", unit="s", above=0, most=30 * 86400),
    ] = 0.0
    retries: Annotated[int, Key("Further attempts after a failure or a timeout.", _ALL | By.AGENT_TOOL, least=0, most=100)] = 0
    submitter: Annotated[str, Key("Whose fair share of the starts it counts for (default: the project's).", By.PLAN | By.ADD)] = ""
    """Whose fair share of the starts it counts for; empty: its project's."""
    not_after: Annotated[float, Key('Not started after this: "2h", "06:30".', By.PLAN | By.ADD, unit="moment", above=0)] = 0.0
    """When it does not start any more: seconds since 1970, or, below ABSOLUTE_FROM, after its submission; 0: it always may."""
    deadline: Annotated[float, Key("It goes before others as this gets near.", By.PLAN | By.ADD, unit="moment", above=0)] = 0.0
    """When it should be done, as `not_after`; 0: no such time."""
    cores: Annotated[tuple[int, ...] | int, Key("How many cores its agent may use, or which.", By.PROJECT)] = 0
    """CPU numbers to pin to, or how many to be given; 0 leaves it to the settings."""
    weight: Annotated[float, Key("Its share of the model limits, beside the others' weights.", _OWN, above=0, most=1000)] = 1.0
    """Its share of the model limits beside the others' weights."""
    tpm_max: Annotated[int, Key("Tokens per minute that it takes at most over time.", _OWN, least=1, most=10**12)] = 0
    """Tokens per minute that it takes at most over time; 0 is no cap."""
    cost_max: Annotated[
        float,
        Key("US dollars that its model calls may cost.", By.PROJECT | By.API | By.AGENT | By.TOOL | By.AGENT_TOOL, above=0, most=1e9),
    ] = 0.0
    """US dollars that its model calls may cost, over all attempts; 0 is no cap."""
    tokens_max: Annotated[int, Key("Tokens that its model calls may take.", _LIMIT, least=1, most=10**12)] = 0
    """Tokens that its model calls may take, over all attempts, without what is read from a cache; 0 is no cap."""
    repeatable: Annotated[bool, Key("A kept answer to the same request is as good as a new one.", By.PROJECT | By.ADD | By.API)] = False
    """Its requests may be answered by kept answers although they do not ask for temperature 0."""
    engine_seconds_max: Annotated[float, Key("Seconds that engines may work for its model calls.", _LIMIT, above=0, most=1e9)] = 0.0
    """Seconds that inference engines may work for its model calls, over all attempts; 0 is no cap."""
    snapshot: Annotated[
        str, Key("Start from this snapshot; it is made when it is not there.", By.PROJECT | By.ADD | By.START | By.TOOL)
    ] = ""
    """Name of the snapshot that its environment is made from; empty: a worktree and no more."""
    snapshot_id: str = ""
    """Id of the one of that name that was looked at when the task was handed over; another may be the newest when it starts."""
    environment: str = ""
    """Name under which what it leaves can be opened again, by `nightcrew fork --reopen`; empty: it has none."""
    sandbox: Annotated[
        int | None,
        Key(
            "Isolation tier that it must have (default: 1 where that works).",
            By.PROJECT | By.ADD | By.START | By.AGENT | By.TOOL,
            least=0,
            most=2,
        ),
    ] = None
    """Isolation tier, 0 to 2, that it must have; None: the best that works here."""
    network: Annotated[
        bool | tuple[str, ...],
        Key("What it can connect to: all, nothing, or the models and these hosts.", By.PROJECT | By.API | By.AGENT),
    ] = True
    """False: not even the gateway is reached. Names of hosts, or `*.name` for all below one: those and the gateway. Both need tier 2."""
    gpus: Annotated[bool | tuple[int, ...], Key("The graphics processors that it sees.", _OWN)] = True
    """The graphics processors that it sees, by their index: all of them, none, or these."""
    memory_max: Annotated[int, Key("What it may hold in memory.", _LIMIT, unit="B", least=2**20)] = 0
    """Bytes that it may hold, all its processes together where the host can count them so; 0 is no limit."""
    disk_max: Annotated[int, Key("What its worktree, logs and temporary files may take on the disk.", _LIMIT, unit="B", least=2**20)] = 0
    """Bytes that its worktree, its logs and its temporary files may take on the disk; 0 is no limit."""
    processes_max: Annotated[int, Key("Processes and threads that it may have at once.", _OWN, least=1, most=2**22)] = 0
    """Processes and threads that it may have at once; 0 is no limit."""
    cpu_max: Annotated[float, Key("Processor time that it may use.", _OWN, unit="s", least=1, most=365 * 86400)] = 0.0
    """Seconds of processor time that it may use, all its processes together; 0 is no limit."""
    model: Annotated[str, Key("What the agent calls the model that it is to use.", _ALL | By.START | By.AGENT_TOOL)] = ""
    """What its agent calls the model that it is to use; empty: the agent's own choice. This and the next three are for kinds of agent that
    take a prompt: their `argv` is empty, and the command is made when the attempt begins."""
    steps_max: Annotated[int, Key("Turns that the agent may take.", _ALL | By.AGENT_TOOL, least=1, most=100_000)] = 0
    """Turns that its agent may take; 0 is no limit of ours."""
    allow: Annotated[tuple[str, ...] | None, Key("A tool that the agent uses without asking.", _ALL, metavar="TOOL")] = None
    """Tools that its agent uses without asking, named as it names them; None: what its kind says."""
    interactive: Annotated[bool, Key("The agent's own interface: attach and type.", By.PROJECT | By.ADD)] = False
    """A person sits at it: it owns the pane."""
    gate: Annotated[
        tuple[str, ...],
        Key("A command that must exit with 0 where the agent was, once that is done.", By.PROJECT | By.API),
    ] = ()
    """A command that says whether what the agent left is good enough; empty: its own end is."""
    gate_timeout_s: Annotated[
        float,
        Key(
            "Stop the gate after this long (default: 10m).",
            By.PROJECT | By.ADD | By.API,
            "gate_timeout",
            unit="s",
            above=0,
            most=86400,
        ),
    ] = 0.0
    """Above 0 where there is one."""
    on_loss: Annotated[
        str, Key("How an agent begins that is run again because it was lost.", By.PROJECT, choices=("resume", "restart"))
    ] = ""
    """`restart`: an attempt that is run again because the last one was lost begins anew; else it goes on with the conversation where its
    kind can."""
    continue_from: str = ""
    """The task whose conversation it continues: a name of the same plan, or a full id."""
    continue_how: str = "fork"
    """As `core.conversations.How`."""
    same_path: Annotated[bool, Key("In a sandbox, its worktree is where that of every such task is.", By.PROJECT)] = False
    """In a sandbox its worktree is seen at the path at which every such task of its repository sees its own."""
    size: Annotated[str, Key("How much work it is; auto: measured.", By.PROJECT | By.ADD | By.API, choices=(*SIZES, "auto"))] = ""
    """How much work it is, as its plan says: `small`, `medium`, `large`, or nothing. Routes and assignments choose by it."""
    work: Annotated[str, Key("How hard its model calls are; routes choose by it.", By.PROJECT | By.ADD | By.API, choices=WORK)] = ""
    """How hard its model calls are, as its plan says; empty: each request is weighed by itself."""
    tags: Annotated[tuple[str, ...], Key("Words by which assignments choose.", By.PROJECT | By.API)] = ()
    """Words by which assignments choose."""
    assumed: tuple[str, ...] = ()
    """Those of `timeout_s`, `steps_max` and `cost_max` that are its kind's and that nobody said."""
    assigned: str = ""
    """What an `[[assign]]` gave it, and which one, for people; empty: none did."""
    paths: Annotated[
        tuple[str, ...], Key("Files that it writes; no other task does meanwhile.", By.ADD | By.API | By.AGENT, metavar="GLOB")
    ] = ()
    """Patterns of the files that it writes, as `core.leases` has them: it does not run beside a task that has what overlaps."""
    children_max: Annotated[
        int,
        Key("How many tasks its agent may add itself.", By.PROJECT | By.ADD | By.AGENT | By.TOOL | By.AGENT_TOOL, least=1, most=1000),
    ] = 0
    """Tasks that its agent may add, all below it counted together, over all its attempts; 0: it may add none."""
    depth_max: Annotated[int, Key("How many levels of tasks may stand below it.", By.PROJECT | By.AGENT | By.TOOL, least=1, most=5)] = 0
    """How many levels of tasks may stand below it: 1, and its children can add none themselves."""
    parent: str = ""
    """Id of the task whose agent added this one; empty: a person did."""
    parent_epoch: int = 0
    """The attempt of `parent` that did."""
    candidate_of: str = ""
    """The name of the group whose candidate it is, see `core.candidates`; empty: it is none."""
    candidates: tuple[str, ...] = ()
    """Of a group, and of a task that judges one: the names of its candidates, which stand in `after` as well."""
    decide: str = ""
    """Of a group: who chooses one of `candidates`, `person` or `gate`. It never runs itself."""
    judge_round: int = 0
    """Of a task that judges `candidates`: whether it is the first or the second to do so. Its prompt is the rubric."""

    @property
    def longest_s(self) -> float:
        """How long an attempt may live, its gate included; 0: as long as it likes."""
        return self.timeout_s + self.gate_timeout_s if self.timeout_s else 0.0

    @property
    def urgent_s(self) -> float:
        """How long it takes at most, as its plan says: 0 when it does not."""
        return 0.0 if "timeout_s" in self.assumed else self.longest_s

    @property
    def gate_words(self) -> str:
        """The gate as a person would type it."""
        return self.gate[2] if self.gate[:2] == ("/bin/sh", "-c") else shlex.join(self.gate)

    @property
    def alone(self) -> TaskSpec:
        """The same as no candidate of a group and no judge of one."""
        return replace(self, candidate_of="", candidates=(), judge_round=0)

    def submitted_at(self, wall: float) -> TaskSpec:
        """The same with every moment as seconds since 1970, of a task that is submitted at `wall`."""
        moments = {name: getattr(self, name) for name in ("not_after", "deadline")}
        counted = {name: wall + at for name, at in moments.items() if 0 < at < ABSOLUTE_FROM}
        return replace(self, **counted) if counted else self


def already_open(environment: str, task: str, state: str) -> Refused:
    """What to tell somebody who opens `environment` while `task` is `state` in it: it is open only once at a time."""
    return Refused("cannot open", on=environment, why=f"{task} is {state} in it", kept="it as it was", hint=f"nightcrew attach {task}")


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One plan, ready to submit."""

    title: str
    tasks: tuple[TaskSpec, ...]
    base: str = "HEAD"
    """Revision that every worktree of the run starts from; resolved to one commit when the run is submitted."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A run together with everything the daemon must know of where it was typed."""

    key: str
    """Idempotency key: the same key twice is one run."""
    project: str
    root: str
    common_dir: str
    base_oid: str
    spec: RunSpec
    env: Mapping[str, str]
    """The allow-listed environment of the shell that submitted it: its PATH, HOME and language are the agents'."""
    night: NightOrder | None = None
    """The terms within which it stays; None: an ordinary run."""
    reviewed: str = ""
    """The task whose result a person asks its first task to go on with."""
    comments: Sequence[int] = ()
    """Numbers of the comments to that result which its prompt holds: they are sent with this run, or there is none."""
    pull: int = 0
    """The pull request (its row in the ledger) that its first task goes on with; 0: none."""
    remarks: Sequence[str] = ()
    """Keys of what came back from there and is in its prompt: given with this run, or there is none."""
    token: str = ""
    """Id of the access token with which a program hands it over; empty: a person does, or a task."""
    digest: str = ""
    """Of that program's request: the same key with another one is refused."""


# Size
# ----
# How much work a task is, when its plan says `size = "auto"`, and what a task of each size gets: pure, by stated rules.


WORDS: Final = (80, 400)
"""A prompt of at most so many words is small, of at most so many medium."""
FILES: Final = (200, 5000)
"""The same for the files that the repository has at the commit the task starts from."""
BYTES: Final = (2 * 2**20, 100 * 2**20)
"""And for how much they hold."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What is measured of a repository: its files at one commit."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Size:
    """`[size.NAME]`: what a task of one size gets that does not say so itself. 0 and empty: nothing."""

    cores: int = 0
    memory_max: int = 0
    models: Mapping[str, str] = field(default_factory=dict)
    """By kind of agent."""


def auto_size(prompt: str | None, repository: Repository | None) -> tuple[str, str]:
    """The size of a task, and by what, for people. The prompt and the repository each say how large they are (the larger of files and
    bytes); the task is what lies in the middle, and the larger one of two that are neighbours. Where only one is known it decides; with
    nothing known a task is medium."""
    measured = [*_of_prompt(prompt), *_of_repository(repository)]
    if not measured:
        return "medium", "nothing to measure it by"
    levels = [level for level, _ in measured]
    return SIZES[(sum(levels) + len(levels) - 1) // len(levels)], " and ".join(words for _, words in measured)


def _of_prompt(prompt: str | None) -> list[tuple[int, str]]:
    if prompt is None:
        return []
    words = len(prompt.split())
    return [(_level(words, WORDS), f"a prompt of {words} words")]


def _of_repository(repository: Repository | None) -> list[tuple[int, str]]:
    if repository is None:
        return []
    level = max(_level(repository.files, FILES), _level(repository.bytes, BYTES))
    return [(level, f"{many(repository.files, 'file')} of {size(repository.bytes)}")]


def _level(value: int, bounds: tuple[int, int]) -> int:
    return sum(value > bound for bound in bounds)
