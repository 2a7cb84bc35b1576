"""What a kind of agent is, as data, and the command and variables that it makes of a task."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from supervisor.kernel.conversations import How, Origin
from supervisor.kernel.gateway_settings import Api, GatewaySettings
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskClass

# Client env
# ----------
# The variables by which an agent's client finds the gateway instead of its provider. Sources: field measurements of Claude Code 2.1
# and Codex 0.169; docs/gateway.md lists them.


_CLAUDE_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1"}
_CLAUDE_PATIENT = {
    "API_FORCE_IDLE_TIMEOUT": "0",
    "API_TIMEOUT_MS": "1800000",
    "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "900000",
    "CLAUDE_CODE_RETRY_WATCHDOG": "1",
}
"""Claude Code then holds out for 30 minutes before a first byte, and waits any 429 or 529 out instead of giving up after a few."""


_CLAUDE_WAY = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN", "NO_PROXY", "no_proxy")
_CLAUDE_ELSEWHERE = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def past_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return NO_PROXY, in both cases, with what `environ` has there and the loopback: the gateway is reached by no proxy."""
    said = [word.strip() for name in ("NO_PROXY", "no_proxy") for word in environ.get(name, "").split(",")]
    names = dict.fromkeys(word for word in (*said, *_LOOPBACK) if word)
    value = "*" if "*" in names else ",".join(names)
    return {"NO_PROXY": value, "no_proxy": value}


def claude_env(variables: Mapping[str, str]) -> dict[str, str]:
    """Return what leads Claude Code to the gateway, as `env` of the settings of one session; empty where `variables`, the agent's own, name
    no gateway. Needed because the `env` of a person's or a repository's settings goes before the environment, and this before both
    (measured with Claude Code 2.1.329)."""
    if "ANTHROPIC_BASE_URL" not in variables:
        return {}
    return {**{name: variables[name] for name in _CLAUDE_WAY if name in variables}, **dict.fromkeys(_CLAUDE_ELSEWHERE, "")}


def aider_config(variables: Mapping[str, str]) -> str:
    """Return what leads aider to the gateway as a configuration file of its own, JSON; empty where `variables` name no gateway. Its
    `set-env` and keys go before `.env` and `.aider.conf.yml` of a person and of a repository (measured with aider 0.86.2)."""
    names = [name for addresses in _ADDRESS.values() for name in addresses if name in variables]
    if not names:
        return ""
    keys = {api: variables[name] for api, name in _KEY.items() if name in variables}
    found: dict[str, object] = {"set-env": [f"{name}={variables[name]}" for name in (*names, "NO_PROXY", "no_proxy") if name in variables]}
    found["api-key"] = [f"{api}={token}" for api, token in keys.items()]
    found |= {f"{api}-api-key": token for api, token in keys.items() if api is not Api.GEMINI}
    return json.dumps(found | ({"openai-api-base": variables["OPENAI_API_BASE"]} if "OPENAI_API_BASE" in variables else {}))


def is_patient(task_class: TaskClass) -> bool:
    """Whether an agent's client is told to wait long: nobody sits in front of it."""
    return task_class is not TaskClass.INTERACTIVE


def block(settings: GatewaySettings, port: int, token: str, *, patient: bool) -> Mapping[str, str]:
    """The variables for an agent with this attempt token; empty without upstreams.

    For an API all of whose upstreams pass the client's own login on, the token is in the path, and no key variable is set.
    """
    found: dict[str, str] = {}
    for api in {upstream.api for upstream in settings.upstreams}:
        own_login = all(upstream.key.kind == "client" for upstream in settings.upstreams if upstream.api is api)
        base = f"http://127.0.0.1:{port}" + (f"/a/{token}" if own_login else "")
        found |= {name: base + path for name, path in _ADDRESS[api].items()} | ({} if own_login else {_KEY[api]: token})
        if api is Api.ANTHROPIC:
            found |= _CLAUDE_QUIET | (_CLAUDE_PATIENT if patient else {})
            if least := min(one.engine.context if one.engine else 0 for one in settings.upstreams if one.api is api):
                found["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(least // 4)
    return found | _contexts(settings)


CONTEXTS_VARIABLE = "NIGHTCREW_CONTEXTS"
"""Of an agent: JSON, shell pattern of models -> tokens that prompt and answer may have together. Those that engines serve."""


def _contexts(settings: GatewaySettings) -> dict[str, str]:
    engines = {upstream.engine.name: upstream.engine for upstream in settings.upstreams if upstream.engine}
    led = {route.model: engines[route.upstream].context for route in settings.routes if route.upstream in engines}
    own = {model: engine.context for engine in engines.values() for model in engine.models}
    return {CONTEXTS_VARIABLE: json.dumps(led | own)} if engines else {}


_KEY = {Api.ANTHROPIC: "ANTHROPIC_AUTH_TOKEN", Api.OPENAI: "OPENAI_API_KEY", Api.GEMINI: "GEMINI_API_KEY"}
_ADDRESS = {
    Api.ANTHROPIC: {"ANTHROPIC_BASE_URL": "", "ANTHROPIC_API_BASE": ""},
    Api.OPENAI: {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1"},
    Api.GEMINI: {"GOOGLE_GEMINI_BASE_URL": ""},
}
"""Variable -> what its client wants behind the address."""
PROVIDER_KEYS = {"ANTHROPIC_API_KEY": Api.ANTHROPIC, "OPENAI_API_KEY": Api.OPENAI, "GEMINI_API_KEY": Api.GEMINI}
"""Where a person's shell holds a provider's key."""


# Kind
# ----
# What a kind of agent is, as data, and the command that it makes of a task.
#
# A template is a list of words with placeholders such as `{model}`. A word whose placeholder has no value is left out, and so is
# the option before it: `"--model", "{model}"` is both words or none. An option is a word that begins with `-` and has no
# placeholder itself. `{permissions}`, `{gateway}`, `{conversation}` and `{mcp}` are words of their own and stand for several: by
# whether a sandbox of ours is around the agent, for an agent whose calls of the OpenAI API go through the gateway, for one that
# continues a conversation, and for one that is given our tools.


PLACEHOLDERS = (
    "prompt",
    "prompt_file",
    "settings",
    "settings_dir",
    "claude_env",
    "claude_sandbox",
    "model",
    "steps_max",
    "cost_max",
    "tokens_max",
    "allow",
    "session",
    "new_session",
    "out",
    "inbox",
    "openai_url",
    "anthropic_url",
    "anthropic_token",
    "openai_token",
    "gemini_url",
    "aider_config",
    "mcp_config",
    "mcp_server",
    "memory",
    "core",
)
PERMISSIONS = "{permissions}"
COMMAND = ("{command}",)
"""The arguments of a kind whose tasks bring the agent's command."""
STREAMED = ("claude", "acp")
"""Protocols by which an agent takes its prompts while it runs, one after the other."""
GATEWAY = "{gateway}"
CONVERSATION = "{conversation}"
MCP = "{mcp}"
BLOCKS = (PERMISSIONS, GATEWAY, CONVERSATION, MCP)
"""Words of a template that stand for several, or none."""
HOOK_VARIABLE = "NIGHTCREW_HOOK"
"""Of an agent whose kind speaks of it: the program that its command line starts as `"$NIGHTCREW_HOOK" EVENT` for each hook."""
CLIENT_VARIABLE = "NIGHTCREW_AGENT"
"""The command by which an agent reaches the memory, mail and leases, and its own tasks where it may add some."""
MEMORY_VARIABLE = "NIGHTCREW_MEMORY"
"""The directory of what the agents of its project know together."""
TASK_KEYS = ("model", "steps_max", "allow", "on_loss", "continue_from", "same_path")
"""Keys of a task that only some kinds know: those with a placeholder for them, those that can continue a conversation, and agents."""
CONTINUING = {"on_loss": How.RESUME, "continue_from": How.FORK}
SETTINGS = "settings"
"""Name of {settings_dir} in the directory {out}."""
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")


def version(text: str) -> tuple[int, ...]:
    """The first numbers with dots between them, as in `codex-cli 0.169.0`; empty: there are none."""
    found = _VERSION.search(text)
    return tuple(int(number) for number in found[0].split(".")) if found is not None else ()


@dataclass(frozen=True, slots=True)
class Trust:
    """How a program keeps in mind that a person trusts a folder: a key of a file of its own, JSON or TOML by its name."""

    file: str
    """Its name in its directory."""
    key: tuple[str, ...]
    """The tables that lead to it, and itself; `{root}` stands for the main worktree of the repository."""
    value: bool | str
    directory: str = ""
    """Below the home; empty: the home itself."""
    variable: str = ""
    """Of the environment; where it is set it names the directory."""
    lock: bool = False
    """The program changes the file while it holds a directory beside it, called as the file is with `.lock` behind."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of agent."""

    name: str
    description: str
    mode: str = "headless"
    """As in `LaunchSpec`, unless a person sits at it."""
    module: str = ""
    """Module of ours that it runs."""
    output: str = ""
    """`one json line`: stdout must be exactly that, or the attempt has failed."""
    sweep: bool = False
    """Nothing stays of a task that is done and changed nothing."""
    internal: bool = False
    """Only nightcrew's own commands submit its tasks; no plan, no command line, no agent and no program does."""
    preload: tuple[str, ...] = ()
    """Modules that a warm process has imported for all its tasks."""
    binary: str = ""
    """The program that is looked for on the agent's PATH."""
    headless: tuple[str, ...] = ()
    """Template of its arguments when it works by itself; empty: it cannot."""
    interactive: tuple[str, ...] = ()
    """The same when a person sits at it."""
    prompt: str = "argument"
    """How the prompt of a headless task reaches it: `argument` (its template has {prompt}), `stdin`, `file` ({prompt_file}), or `stream`:
    by its protocol, one of STREAMED, and so the texts that people send it."""
    protocol: str = ""
    """Which parser of agents/protocols reads its stdout; empty: its exit status is all that is known."""
    version: str = ""
    """The oldest that the flags were tried with."""
    allow: tuple[str, ...] = ()
    """Tools that it may use in a sandbox when its task does not say which."""
    sandboxed: tuple[str, ...] = ()
    """The words for {permissions} in a sandbox of ours."""
    unsandboxed: tuple[str, ...] = ()
    """The same where there is none."""
    gateway: tuple[str, ...] = ()
    """The words for {gateway}."""
    resume: tuple[str, ...] = ()
    """The words for {conversation} in an attempt that goes on with the conversation {session}; empty: it cannot."""
    fork: tuple[str, ...] = ()
    """The same for one that goes on with a copy of it, whose id is {new_session} where that can be chosen."""
    transcript: tuple[str, ...] = ()
    """Where it keeps the conversation {session}: patterns below `~`, `$VARIABLE` or {out}. The first one counts whose variable is set."""
    mcp: tuple[str, ...] = ()
    """The words for {mcp}: how its command line is given our tools."""
    settings: str = ""
    """The text for {settings}: what its command line takes as the settings of one session. It may hold placeholders too; where one of
    them has no value there are no settings."""
    settings_file: str = ""
    """Path below {settings_dir} of a file that holds them; empty: none is written."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the agent gets unless the person's shell or the task sets them; with placeholders too."""
    timeout_s: float = 0.0
    """How long a task of it may take that works by itself and does not say; 0: as long as it likes. This and the next two are for tasks
    that may add no others: whoever leads others may take a night."""
    steps_max: int = 0
    """How many turns, likewise."""
    cost_max: float = 0.0
    """How many US dollars, likewise; of models of a known price."""
    login: tuple[str, ...] = ()
    """Its arguments that ask whether somebody is logged in: it exits with 0 then. Empty: nobody asks."""
    trust: Trust | None = None
    """None: it asks no such question, or nobody knows where it keeps the answer."""
    program: tuple[str, ...] = ()
    """The words before its arguments: the binary, or Python with the module. Set by who reads the kind."""
    driver: tuple[str, ...] = ()
    """Template of what runs its headless command and gives it its prompts, before that command. Set by who reads the kind."""
    source: str = ""
    """The user's file that describes it; empty: it is one of ours."""

    @property
    def is_agent(self) -> bool:
        """Whether its tasks give a prompt; those of other kinds give a command or nothing."""
        return bool(self.headless or self.interactive or self.driver)

    @property
    def attended(self) -> bool:
        """Return whether its tasks need a person at their terminal."""
        return self.mode == "terminal"

    @property
    def takes_command(self) -> bool:
        """Whether its tasks give a prompt and a command: that of the agent."""
        return self.headless == COMMAND

    @property
    def takes_input(self) -> bool:
        """Whether texts can be sent to its headless tasks."""
        return self.knows("inbox", interactive=False)

    def owns_terminal(self, *, interactive: bool) -> bool:
        """Whether a task of it, which asks to be interactive or not, has the pane's terminal: a person, or `send`, can type into it."""
        return self.mode == "terminal" or interactive

    @property
    def has_hooks(self) -> bool:
        """Whether its command line is told to start our program at its hooks."""
        return any(HOOK_VARIABLE in word for word in (self.settings, *self.headless, *self.interactive))

    def template(self, *, interactive: bool) -> tuple[str, ...]:
        """Its words with their placeholders, those of its driver first; empty when it cannot be run this way."""
        return self.interactive if interactive else (*self.driver, *self.headless)

    def knows(self, key: str, *, interactive: bool) -> bool:
        """Whether it makes something of a task's `key`."""
        if key == "same_path":
            return self.is_agent
        if key in CONTINUING:
            return bool(self.continues(CONTINUING[key], interactive=interactive))
        words = (*self.template(interactive=interactive), *self.sandboxed, *self.unsandboxed)
        return any(f"{{{key}}}" in word for word in words)

    def continues(self, how: How, *, interactive: bool) -> tuple[str, ...]:
        """The words with which it continues a conversation; empty when it cannot this way."""
        words = self.fork if how is How.FORK else self.resume
        return words if CONVERSATION in self.template(interactive=interactive) else ()

    def chooses_session(self, how: How | None) -> bool:
        """Whether we say which id the conversation of an attempt has; otherwise the agent tells. `how` it begins; None: anew."""
        if how is None:
            return any("{session}" in word for word in (*self.headless, *self.interactive))
        return how is How.RESUME or any("{new_session}" in word for word in self.fork)

    def takes_prompt(self, *, interactive: bool) -> bool:
        """Whether a prompt can be given to it at its start."""
        by_itself = self.prompt in ("stdin", "stream") and not interactive
        return by_itself or any(self.knows(key, interactive=interactive) for key in ("prompt", "prompt_file"))


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of an attempt when its command is made."""

    prompt_file: str
    """Where the prompt lies as a file that the agent can read."""
    inbox: str
    """Directory where texts lie that were sent to it."""
    out: str
    """Directory of the attempt that the agent may write in, outside the worktree."""
    session: str
    """A UUID that no other attempt has."""
    sandboxed: bool
    variables: Mapping[str, str]
    """What the agent gets of nightcrew: the gateway's address and its token, when it goes through one."""
    origin: Origin | None = None
    """The conversation that it continues."""
    mcp_config: str = ""
    """The file by which its command line finds our tools; empty: it has none."""
    core: str = ""
    """The file of the memory that every agent is told, where there is one and its prompt does not have it already."""


@dataclass(frozen=True, slots=True)
class Command:
    """How an agent is run."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Its kind's variables."""
    stdin: str = ""
    """File that becomes its stdin; empty: none."""
    terminal: bool = False
    """It owns the pane."""
    settings: str = ""
    """What is to stand in its kind's settings file; empty: there is none."""


def command(kind: Kind, task: TaskSpec, place: Place) -> Command:
    """What to run for `task`. A task that brings its own command is run as it says."""
    terminal = kind.owns_terminal(interactive=task.interactive)
    if task.argv and not kind.takes_command:
        return Command(task.argv, {}, terminal=terminal)
    by_stdin = kind.prompt == "stdin" and not terminal and task.prompt is not None
    values = _values(kind, task, place)
    words = _expanded(kind, kind.interactive if terminal else kind.headless, place, values)
    env = {name: filled[0] for name, text in kind.env.items() if (filled := fill((text,), values))}
    settings = values["settings"] if kind.settings_file else ""
    argv = task.argv if kind.takes_command else (*kind.program, *fill(words, values))
    driver = () if terminal else fill(kind.driver, values)
    return Command((*driver, *argv), env, place.prompt_file if by_stdin else "", terminal, settings)


def _values(kind: Kind, task: TaskSpec, place: Place) -> dict[str, str]:
    from supervisor.kernel.prompt import as_argument  # only here: short commands need none

    allow = task.allow if task.allow is not None else kind.allow if place.sandboxed else ()
    values = {
        "prompt": as_argument(task.prompt or "", place.prompt_file),
        "prompt_file": place.prompt_file if task.prompt else "",
        "model": task.model,
        "steps_max": str(task.steps_max or ""),
        "cost_max": f"{task.cost_max:f}" if task.cost_max and "cost_max" not in task.assumed else "",
        "tokens_max": str(task.tokens_max or ""),
        "allow": ",".join(allow),
        "session": place.session if place.origin is None else "",
        "out": place.out,
        "inbox": place.inbox,
        "openai_url": place.variables.get("OPENAI_BASE_URL", ""),
        "anthropic_url": place.variables.get("ANTHROPIC_BASE_URL", ""),
        "anthropic_token": place.variables.get("ANTHROPIC_AUTH_TOKEN", ""),
        "openai_token": place.variables.get("OPENAI_API_KEY", ""),
        "gemini_url": place.variables.get("GOOGLE_GEMINI_BASE_URL", ""),
        "mcp_config": place.mcp_config,
        "mcp_server": place.variables.get(CLIENT_VARIABLE, ""),
        "memory": place.variables.get(MEMORY_VARIABLE, ""),
        "claude_env": json.dumps(claude_env(place.variables)),
        "aider_config": aider_config(place.variables),
        "claude_sandbox": '{"enabled": false}' if place.sandboxed else "{}",
        "core": place.core,
    }
    settings = "".join(fill((kind.settings.strip(),), values))
    return {**values, "settings": settings, "settings_dir": f"{place.out}/{SETTINGS}" if settings and kind.settings_file else ""}


def _expanded(kind: Kind, template: tuple[str, ...], place: Place, values: Mapping[str, str]) -> tuple[str, ...]:
    blocks = {
        PERMISSIONS: kind.sandboxed if place.sandboxed else kind.unsandboxed,
        GATEWAY: kind.gateway if values["openai_url"] else (),
        CONVERSATION: _continuing(kind, place, values),
        MCP: kind.mcp if values["mcp_config"] else (),
    }
    return tuple(one for word in template for one in blocks.get(word, (word,)))


def _continuing(kind: Kind, place: Place, values: Mapping[str, str]) -> tuple[str, ...]:
    if place.origin is None:
        return ()
    words = kind.fork if place.origin.how is How.FORK else kind.resume
    return fill(words, {**values, "session": place.origin.session, "new_session": place.session})


def fill(template: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """The template's words with `values`, each put in once: what a value says is never read as a placeholder. An empty value is none."""
    words: list[str] = []
    for before, word in zip(("", *template), template, strict=False):
        if all(values.get(name) for name in _PLACEHOLDER.findall(word)):
            words.append(_PLACEHOLDER.sub(lambda found: values[found[1]], word))
        elif not word.startswith("-") and before.startswith("-") and not _PLACEHOLDER.search(before):
            words.pop()
    return tuple(words)


# Environment
# -----------
# Which variables reach an agent: an allow-list, since everything else (loader, language, git, tmux and cloud variables) can change
# what runs or leak a secret.


ALLOWED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "COLORTERM", "NO_COLOR"})
"""TERM is the pane's own and TMPDIR is private to the attempt, so neither is here."""


def allowed(environ: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """The part of `environ` that agents may see: ALLOWED, every LC_*, and the names a person listed in `pass_env`."""
    return {name: text for name, text in environ.items() if name in ALLOWED or name.startswith("LC_") or name in extra}


UNATTENDED = {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "force"}
"""Variables that make git and ssh fail instead of asking for a password or a host's key: an unattended task has no person to answer."""


def for_agent(
    base: Mapping[str, str], params: Mapping[str, str], own: Mapping[str, str], *, attended: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return the whole environment of one attempt, sorted: `own` (NIGHTCREW_*, TMPDIR) over the task's `params` over `base` over
    UNATTENDED, which an `attended` one, that has a terminal, does not get."""
    return tuple(sorted({**({} if attended else UNATTENDED), **base, **params, **own}.items()))


# Assign
# ------
# Which kind of agent and which model a task gets that does not say so itself: the user's `[[assign]]` rules. Pure.


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[assign]]`. What is empty is not asked for, or not given."""

    where: str
    """`config.toml:LINE`."""
    task_class: TaskClass | None = None
    size: str = ""
    tags: tuple[str, ...] = ()
    """The task has all of them."""
    kind: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """What a task says; `kind` and `model` are empty where it leaves them to the rules."""

    task_class: TaskClass
    size: str = ""
    tags: Collection[str] = ()
    kind: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """What a rule gives a task beyond what that says."""

    kind: str = ""
    model: str = ""
    by: str = ""
    """For people: what was given, and by which rule. Empty: nothing."""


def assign(rules: Iterable[Rule], task: Task) -> Given:
    """By the first rule that fits, and by no other. A rule for another kind of agent than the task says does not fit."""
    rule = next((rule for rule in rules if _fits(rule, task)), None)
    if rule is None:
        return Given()
    kind, model = rule.kind if not task.kind else "", rule.model if not task.model else ""
    what = ", ".join(f"{name} {value}" for name, value in (("kind", kind), ("model", model)) if value)
    return Given(kind, model, f"{what} by {rule.where}" if what else "")


def _fits(rule: Rule, task: Task) -> bool:
    if rule.task_class not in (None, task.task_class) or rule.size not in ("", task.size):
        return False
    return set(rule.tags) <= set(task.tags) and (not task.kind or rule.kind in ("", task.kind))
