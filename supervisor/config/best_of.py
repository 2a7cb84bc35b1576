"""The keys `best_of`, `candidates`, `decide` and `judge` of a task: one table of a plan that is several tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, model_validator

from supervisor.config.reading import Command, Duration, OptionValue, Strict
from supervisor.core.candidates import CANDIDATES_MAX, JUDGE_ROUNDS, candidate_name, judge_name
from supervisor.core.spec import TaskSpec

READERS = {"builtin": ["read", "grep", "glob"]}
"""Tools of a judge, by its kind: those that read. One that can work without any has none."""
ID_MAX = 64 - len(judge_name("", JUDGE_ROUNDS[-1]))
"""Characters of the id of a task that has candidates: theirs are longer."""
RUBRIC = "Which of them does best what was asked: correct, complete, tested, and no more than that?"
"""What a judge goes by that was told nothing else."""


M = TypeVar("M", bound=BaseModel)


class CandidateModel(Strict):
    """What one candidate has that the task does not say."""

    kind: str | None = None
    model: OptionValue | None = None
    command: Command | None = None
    params: dict[str, str | int | float | bool] | None = None
    steps_max: Annotated[int, Field(ge=1, le=100_000)] | None = None
    timeout: Annotated[Duration, Field(gt=0, le=30 * 86400)] | None = None
    cost_max: Annotated[float, Field(gt=0, le=1e9)] | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What it says."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class JudgeModel(Strict):
    """Who compares the candidates."""

    kind: str = "shell"
    model: OptionValue | None = None
    command: Command | None = None
    rubric: str | None = None
    rubric_file: str | None = None
    timeout: Annotated[Duration, Field(gt=0, le=86400)] | None = None
    cost_max: Annotated[float, Field(gt=0, le=1e9)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> JudgeModel:
        if self.rubric is not None and self.rubric_file is not None:
            raise ValueError("give rubric or rubric_file, not both")
        return self


class BestOfKeys(Strict):
    """Those keys of a task."""

    best_of: Annotated[int, Field(ge=2, le=CANDIDATES_MAX)] | None = None
    candidates: Annotated[list[CandidateModel], Field(min_length=2, max_length=CANDIDATES_MAX)] | None = None
    decide: Literal["person", "gate"] | None = None
    judge: JudgeModel | None = None

    @property
    def is_group(self) -> bool:
        """Whether the task is several."""
        return self.best_of is not None or self.candidates is not None

    @property
    def each(self) -> list[CandidateModel]:
        """What each candidate says of itself."""
        return self.candidates if self.candidates is not None else [CandidateModel()] * (self.best_of or 1)

    def misfit(self, name: str, *, gate: bool, interactive: bool) -> tuple[str, str] | None:
        """The key that is wrong and why, of the task `name`; None when all fits."""
        if not self.is_group:
            wrong = next((key for key in ("decide", "judge") if getattr(self, key) is not None), "")
            return (wrong, f"{wrong} is for a task with candidates: give best_of or candidates too") if wrong else None
        if self.best_of is not None and self.candidates is not None and self.best_of != len(self.candidates):
            return "best_of", f"it says {self.best_of} and candidates has {len(self.candidates)}; leave best_of out"
        if len(name) > ID_MAX:
            return "id", f"the id of a task with candidates has at most {ID_MAX} characters: theirs are longer"
        if self.decide == "gate" and not gate:
            return "decide", "gate is for a task that has a gate: give gate too, or leave the choice to a person"
        return ("best_of", "candidates work by themselves: leave interactive out") if interactive else None


def tasks(
    keys: BestOfKeys, name: str, candidate: Callable[[int, CandidateModel], TaskSpec], judge: Callable[[JudgeModel], TaskSpec]
) -> list[TaskSpec]:
    """The tasks that the table `name` is: its candidates, their judges, and last the group. `candidate` and `judge` make one of them,
    whose names are given here."""
    made = [candidate(number, one) for number, one in enumerate(keys.each)]
    ids = tuple(candidate_name(name, number) for number in range(1, len(made) + 1))
    candidates = [
        replace(one, name=own, title=f"{one.title} ({number} of {len(ids)})", candidate_of=name)
        for number, (own, one) in enumerate(zip(ids, made, strict=True), start=1)
    ]
    judges = [_judge_of(judge(keys.judge), name, number, made[0], ids) for number in JUDGE_ROUNDS] if keys.judge is not None else []
    return [*candidates, *judges, _group(keys, name, made[0], ids, judges)]


def _judge_of(made: TaskSpec, name: str, number: int, whole: TaskSpec, ids: tuple[str, ...]) -> TaskSpec:
    title = f"judges {name} ({number} of {len(JUDGE_ROUNDS)})"
    return replace(
        made, name=judge_name(name, number), title=title, after=ids, after_on="finished", candidates=ids, judge_round=number,
        priority=whole.priority, task_class=whole.task_class, submitter=whole.submitter,
    )  # fmt: skip


def _group(keys: BestOfKeys, name: str, whole: TaskSpec, ids: tuple[str, ...], judges: Sequence[TaskSpec]) -> TaskSpec:
    return TaskSpec(
        name=name, title=whole.title, kind="shell", argv=(), after=(*ids, *(one.name for one in judges)), after_on="finished",
        candidates=ids, decide=keys.decide or "person", priority=whole.priority, task_class=whole.task_class, submitter=whole.submitter,
    )  # fmt: skip


def judge_task(make: type[M], judge: JudgeModel, rubric: str | None, *, sandbox: int | None) -> M:
    """A judge as the task that it is: without a tool that asks first, and in a sandbox unless the task itself has none."""
    agent: dict[str, Any] = {} if judge.command is not None else {"allow": READERS.get(judge.kind, [])}
    said = {key: getattr(judge, key) for key in ("kind", "model", "command", "timeout", "cost_max")}
    return make(prompt=rubric or RUBRIC, sandbox=1 if sandbox is None else sandbox, **agent, **said)


def names(keys: BestOfKeys, name: str) -> Mapping[str, str]:
    """The ids that the table `name` needs beside its own, each with what it is."""
    if not keys.is_group:
        return {}
    found = {candidate_name(name, number): "a candidate" for number in range(1, len(keys.each) + 1)}
    judges = {judge_name(name, number): "a judge" for number in JUDGE_ROUNDS} if keys.judge is not None else {}
    return found | judges
