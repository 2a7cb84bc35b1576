"""`nightcrew map --prompt`: what is typed for it, read and checked before anything runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from supervisor.cli.names import kind_name
from supervisor.core.analysis.types import many
from supervisor.core.errors import ConfigError, Refused, UsageError, one_line
from supervisor.core.map_prompt import MAX_TOKENS, NAMES, PromptTerms, check_fields, fields
from supervisor.host.paths import home

if TYPE_CHECKING:
    from supervisor.core.spec import TaskSpec
    from supervisor.daemon.submit import Workplace

F = TypeVar("F", bound=Callable[..., Any])
TEMPLATE_MAX = 2**20
"""Bytes."""
AT_ONCE = 8
"""Calls of one worker under way: the gateway holds what a limit cannot take now, so more do no harm and fewer may leave it unused."""
GROUP = 1000
"""Items of one worker that asks in batches."""
NOT_THE_WORK = ("timeout_s", "at_once", "asks", "each", "group")
"""Keys of what is done with an item that change how and not what: with others the map is the same."""
LEFT_SHOWN = 10
WORKER = "map-prompt"
"""Kind of the workers that ask models themselves."""
_OPTIONS = (
    click.option("--prompt", metavar="TEXT|@FILE", help="Ask a model about each item: {content} is a file's text. With --kind: an agent."),
    click.option("--schema", type=click.Path(path_type=Path, dir_okay=False), help="JSON schema that each answer must match."),
    click.option("--model", help="The model (default: the gateway's usual one, or the agent's own choice)."),
    click.option("--max-tokens", type=click.IntRange(1), default=MAX_TOKENS, show_default=True, help="Of one answer."),
    click.option("--kind", shell_complete=kind_name, help="An agent of this kind works on each shard, in a worktree of its own."),
    click.option("--shard", type=click.IntRange(1), default=1, show_default=True, help="Items of each agent's task."),
    click.option("--plan", is_flag=True, help="First an agent splits the items by meaning into parts that do not touch each other."),
    click.option("--economy", is_flag=True, help="Ask in batches, at half the price: an answer may take an hour, at most a day."),
    click.option("--merge", is_flag=True, help="Bring what the items changed into one branch, in their order."),
)


def options(function: F) -> F:
    """Those of `nightcrew map` that prompts, plans and merges have."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Asked:
    """They, as click read them."""

    prompt: str | None = None
    schema: Path | None = None
    model: str | None = None
    max_tokens: int = MAX_TOKENS
    kind: str | None = None
    shard: int = 1
    plan: bool = False
    economy: bool = False
    merge: bool = False

    @property
    def by_agents(self) -> bool:
        """Whether agents work on the items."""
        return self.prompt is not None and self.kind is not None


def refuse(asked: Asked, *, network: bool) -> None:
    """Raises UsageError for what does not go together."""
    if asked.prompt is not None and not network:
        raise UsageError("not with --prompt", on="--network no", why="no model can be asked without a network")
    if asked.prompt is None:
        for name in ("schema", "model"):
            if getattr(asked, name) is not None:
                raise UsageError("not without --prompt", on=f"--{name}", why="there is no model to be asked")
        if asked.kind is not None and not asked.plan:
            raise UsageError("not without --prompt", on="--kind", why="a command needs no agent, except to split the work: --plan")
    elif asked.kind is None and asked.merge:
        raise UsageError("nothing to merge", why="a model that is asked changes no file", hint="add --kind for agents that do")
    if asked.economy and (asked.prompt is None or asked.by_agents):
        raise UsageError("only for prompts without --kind", on="--economy", why="a batch holds single calls of a model")
    if asked.economy and asked.plan:
        raise UsageError("not with --plan", on="--economy", why="a batch has items of any meaning")
    if asked.shard > 1 and not asked.by_agents:
        raise UsageError("not without --kind", on="--shard", why="workers choose their shards themselves")


def template(text: str) -> str:
    """What --prompt names. Raises ConfigError for a file that cannot be used."""
    if not text.startswith("@"):
        return text.encode("utf-8", "backslashreplace").decode()
    path = Path(text[1:])
    try:
        with path.open("rb") as file:
            data = file.read(TEMPLATE_MAX + 1)
        if len(data) > TEMPLATE_MAX:
            raise ValueError(f"it is larger than {TEMPLATE_MAX} bytes")
        return data.decode()
    except (OSError, ValueError) as error:
        raise ConfigError("cannot read the prompt", on=str(path), why=str(error)) from None


def what(asked: Asked, form: str, retries: int) -> dict[str, Any]:
    """What is done with each item. Raises UsageError for a field that items do not have, ConfigError for a file."""
    from supervisor.config import answer_schema

    text = template(asked.prompt or "")
    known = (*NAMES, "index", *(["content"] if form == "file" and not asked.by_agents else []))
    if asked.by_agents and "content" in fields(text):
        raise UsageError("no such field", on="{content}", why="an agent has the files in its worktree", hint="say {file}")
    check_fields(text, known, open_ended=form == "jsonl")
    if not asked.by_agents:
        refuse_without_gateway()
    schema = answer_schema.load(asked.schema) if asked.schema is not None else None
    terms = PromptTerms(text, schema, asked.model or "", asked.max_tokens)
    common = {"form": form, "terms": terms.to_shape(), "asks": retries + 1}
    if asked.by_agents:
        return {"executor": "agents", "kind": asked.kind, "each": asked.shard, **common}
    return {"executor": "prompt", "at_once": AT_ONCE, **common, **({"group": GROUP} if asked.economy else {})}


def agent(asked: Asked, place: Workplace, base: str, options: dict[str, Any]) -> TaskSpec:
    """The task that each shard becomes, or the one that plans, but for its prompt. Raises UsageError for a kind that takes no prompt,
    ToolMissing."""
    from supervisor.daemon import submit

    kind = asked.kind or place.settings.agent_kind
    typed = {"kind": kind, "model": asked.model if asked.by_agents else None, "name": "s", **options}
    submission, _ = submit.of_prompt("(the prompt of a shard)", typed, place, base, os.environ)
    return submission.spec.tasks[0]


def merge_lines(merge: dict[str, Any] | None) -> Iterator[str]:
    """What a person is told of the merge."""
    if merge is None:
        return
    if merge["why"]:
        yield f"not merged: {merge['why']}"
        return
    if not merge["merged"]:
        yield "nothing was merged" if merge["left"] else "nothing to merge: no item changed a file"
    else:
        yield f"{many(merge['merged'], 'edit')} merged into the branch {merge['branch']}"
    for left in merge["left"][:LEFT_SHOWN]:
        files = f" in {', '.join(one_line(file) for file in left['files'][:3])}" if left["files"] else ""
        yield f"left out: {one_line(left['item'])}: {left['why']}{files}" + (
            f"; git diff {merge['branch']}...{left['ref']}" if left["ref"] else ""
        )
    if len(merge["left"]) > LEFT_SHOWN:
        yield f"and {len(merge['left']) - LEFT_SHOWN} more, see the summary"


def refuse_without_gateway() -> None:
    """Raises Refused when no model can be asked."""
    from supervisor.config import user

    if not user.load_gateway(user.path(), home().keys).upstreams:
        hint = "ANTHROPIC_API_KEY=... nightcrew up -d"
        raise Refused("no model can be asked", why="the gateway has no upstream and no key", hint=hint)
