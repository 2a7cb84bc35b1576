"""Which sandbox each attempt gets, and logins that its program renews."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from supervisor.host import files, usage
from supervisor.host.paths import Home
from supervisor.kernel.errors import HostError
from supervisor.kernel.spec import TaskSpec
from supervisor.sandbox import executors
from supervisor.sandbox import policy as sandbox
from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Tier
from worktrees import private_repository
from worktrees.backends import UserOverlay
from worktrees.environments import Environment

# Isolation
# ---------
# Which sandbox each attempt gets: what works on this host, tried once, and what its task asks for.


POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is to be confined."""

    spec: TaskSpec
    directory: Path
    made: Environment
    home: Path
    """The HOME that the agent gets."""
    attended: bool
    """A person sits at its terminal: it is confined only when its task says so."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment that the agent gets, below its task's `params`."""

    same_path: Path | None = None
    """Where it sees its worktree too, when it is confined."""
    memory: Path | None = None
    """What the agents of its project know together: seen by it, and read-only."""

    @property
    def variables(self) -> dict[str, str]:
        """The environment that the agent gets, but for what nightcrew adds."""
        return {**self.env, **self.spec.params}


@dataclass(frozen=True, slots=True)
class Confined:
    """How one attempt is started."""

    tier: Tier
    wrap: tuple[str, ...] = ()
    """`LaunchSpec.wrap`."""
    policy: str = ""
    """`LaunchSpec.policy`."""
    variables: tuple[tuple[str, str], ...] = ()


class Isolation:
    """The sandboxes of one supervisor."""

    def __init__(self, home: Home, default: int | None, *, shared_caches: bool = True) -> None:
        """`default` is the tier of tasks that ask for none; None: the best that works, and none for attended ones. `shared_caches` as in
        `Settings`."""
        self._home = home
        self._shared_caches = shared_caches
        self._default = Tier(default) if default is not None else None
        self.support = executors.known()
        self.gpus = usage.probe()

    def tier(self, spec: TaskSpec, *, attended: bool) -> Tier:
        """What `spec` runs in. Raises Refused when this host cannot do what it asks for: it never runs with less."""
        asked = Tier(spec.sandbox) if spec.sandbox is not None else self._default
        limited = spec.network is not True
        if asked is None and attended and not limited:
            return Tier.NONE
        if asked is not None and spec.sandbox is None and limited:
            asked = None  # what a task needs goes before what others get
        return sandbox.choose(asked, self.support.tiers, spec.network)

    def mounts_overlays(self, spec: TaskSpec, *, attended: bool) -> bool:
        """Whether the agent will be in a namespace of our own making, which can mount files that nobody outside can see."""
        return self.tier(spec, attended=attended) in self.support.works[Executor.NAMESPACES]

    def confine(self, attempt: Attempt, gateway_port: int, *, warm: bool) -> Confined:
        """How to start it; writes its policy when it is `warm`. Raises Refused as `tier`, also for a GPU that is not there;
        HostError also when only another sandbox could mount its files."""
        tier = self.tier(attempt.spec, attended=attempt.attended)
        shown = usage.chosen(self.gpus, attempt.spec.gpus)
        narrowed = usage.visibility(self.gpus.gpus, shown) if attempt.spec.gpus is not True else {}
        made = attempt.made
        if made.layers is not None and made.layers.backend == UserOverlay.name and tier not in self.support.works[Executor.NAMESPACES]:
            why = "it was made for a sandbox that is not there now"
            raise HostError("nobody can mount its files", on=str(made.path), why=why, kept="both layers")
        if tier is Tier.NONE:
            corrected = made.repo.git.corrections(made.place)
            settings = sandbox.git_settings(attempt.variables, corrected) if corrected else {}
            tmp = str(self._home.short_tmp(attempt.directory))  # made with the orders of its runner
            return Confined(tier, variables=(*narrowed.items(), *settings.items(), ("TMPDIR", tmp)))
        if made.private is None:
            raise HostError("it has no repository of its own", on=str(made.path), why="it was made for no sandbox", kept="its worktree")
        git = (made.repo.common_dir, made.private, made.admin_dir.name)
        options = made.layers.options(user=True) if made.layers is not None and made.layers.backend == UserOverlay.name else ""
        seen = executors.survey(self._home, attempt.directory, made.path, git, attempt.home, options)
        seen = replace(seen, devices=tuple(sorted({device for gpu in shown for device in gpu.devices})))
        if attempt.same_path is not None:
            seen = replace(seen, same_path=os.path.realpath(files.private_dir(attempt.same_path)))
        if attempt.memory is not None:
            seen = replace(seen, memory=executors.unmoved(self._home, attempt.memory))
        seen = replace(seen, program=(*seen.program, *private_repository.borrowed(made.repo), *self._own_programs()))
        if made.layers is not None and (warm or not made.layers.upper):  # where what is in its memory, or linked, came from
            seen = replace(seen, program=(*seen.program, os.path.realpath(made.layers.lower)))
        store = executors.unmoved(self._home, attempt.memory.with_name("caches")) if attempt.memory is not None else ""
        seen = executors.with_home(seen, attempt.directory, attempt.home, attempt.variables, tier, attempt.spec.network, store)
        seen = replace(seen, shared_caches=self._shared_caches)
        policy = executors.policy(seen, tier, attempt.spec.network, gateway_port)
        own = {"TMPDIR": sandbox.TEMPORARY[0], **sandbox.variables(policy), **sandbox.git_settings(attempt.variables)}
        variables = (*narrowed.items(), *own.items())
        if warm and tier in self.support.works[Executor.NAMESPACES]:
            file = attempt.directory / POLICY
            files.atomic_write(file, b"".join(os.fsencode(word) + b"\0" for word in executors.words(policy)), durable=False)
            return Confined(tier, policy=str(file), variables=variables)
        executor = self.support.executor(tier)  # the first choice are namespaces, which alone can mount such an overlay
        assert executor is not None  # noqa: S101 - `choose` gave a tier that works
        return Confined(tier, wrap=executors.argv(policy, executor), variables=variables)

    def _own_programs(self) -> tuple[str, ...]:
        """What agents start of ours lies in the state directory, which they do not see otherwise."""
        return (os.path.realpath(self._home.bin),) if self._home.bin.is_dir() else ()

    def shortfalls(self) -> list[str]:
        """What this host cannot do, one sentence each, for a person to see when the supervisor starts."""
        found = []
        if Tier.FILES not in self.support.tiers:
            why = "; ".join(sorted(set(self.support.why_not.values())))
            found.append(f"no sandbox works here, agents run with all your rights (tier 0): {why or 'this system has none'}")
        elif not self.support.terminal:
            found.append(
                "a sandboxed agent could type into the terminal of whoever is attached: legacy TIOCSTI is on, and no filter for this CPU"
            )
        return found
