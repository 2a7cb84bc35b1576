"""See the package. Exit status: of `claude` its own; of an ACP agent 0 when its last turn ended well, 1 when not, 130 when a person ended
it; 2 for options that are off, 126 and 127 when the agent cannot be started."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from agents import acp, printing
from agents.acp import Agent
from agents.delivery import Inbox

CRASHES = (4, 6, 7, 8, 9, 11)
"""ILL, ABRT, BUS, FPE, KILL, SEGV, as `supervisor.kernel.retry` has them; that is not imported here, beside each agent."""

OPTIONS = ("--prompt-file", "--inbox", "--allow", "--model", "--resume")


def main(words: list[str], line_out: int) -> int:
    """Run one agent to its end."""
    try:
        protocol, options, argv = _read(words)
        prompt = Path(options.get("--prompt-file", "")).read_text(encoding="utf-8")
    except (ValueError, OSError) as error:
        return _say(f"bad options: {error}", 2)
    inbox = Inbox(options.get("--inbox", ""))
    if unknown := [name for name in filter(None, options.get("--allow", "").split(",")) if not _is_kind(name)]:
        return _say(f"bad options: allow: {unknown[0]} is no kind of tool of an ACP agent", 2)
    try:
        agent = Agent(argv, own_group=protocol == "acp")
    except OSError as error:
        return _say(f"{argv[0]}: {error.strerror}", 127 if isinstance(error, FileNotFoundError) else 126)
    if protocol == "claude":
        return acp.run(agent, prompt, inbox, line_out)
    return _acp(agent, prompt, inbox, options, line_out)


def _acp(agent: Agent, prompt: str, inbox: Inbox, options: dict[str, str], line_out: int) -> int:
    from agents import acp
    from agents.printing import Pane, Records

    allow = tuple(filter(None, options.get("--allow", "").split(",")))
    wanted = acp.Wanted(prompt, allow, options.get("--model", ""), options.get("--resume", ""))
    return acp.Client(agent, Records(line_out, os.environ.get("NIGHTCREW_OUT")), Pane(sys.stderr), wanted).run(inbox)


def _is_kind(name: str) -> bool:
    from agents import acp

    return name in acp.KINDS


def _read(words: list[str]) -> tuple[str, dict[str, str], list[str]]:
    """The protocol, the options, and the agent's command. Raises ValueError."""
    if not words or words[0] not in ("claude", "acp") or "--" not in words:
        raise ValueError("want claude or acp, options, -- and a command")
    end = words.index("--")
    given = dict(zip(words[1:end:2], words[2:end:2], strict=True))
    if unknown := sorted(set(given) - set(OPTIONS)):
        raise ValueError(f"{unknown[0]} is not an option")
    if not words[end + 1 :]:
        raise ValueError("no command")
    return words[0], given, words[end + 1 :]


def _say(what: str, status: int) -> int:
    print(f"nightcrew: {what}", file=sys.stderr, flush=True)
    return status


def _die_of(number: int) -> None:
    """End as the agent ended, by a signal that nobody at its terminal sends: who looks at us must see that it crashed."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the agent's own core says more
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    handle = printing.claim()  # whatever prints from here on prints on stderr
    status = main(sys.argv[1:], handle)
    if status - 128 in CRASHES:
        _die_of(status - 128)
    sys.exit(status)
