"""What a person who is at this machine is told: by real tmux, and by a stand-in for `notify-send` that notes what it was given."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.client import protocol
from supervisor.features.notify import service as notify_service
from supervisor.features.notify.rules import AGAIN_S, ASKED_S, HERE, Kind, Notice, Receiver, Terms
from supervisor.features.notify.service import Notifying, Sources
from supervisor.host import attempt_tokens, secrets
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.server.attempts.observe import AgentEvidence
from supervisor.store.ledger import Ledger
from tests.cli.terminal import Terminal
from tests.store.kit import Wall
from tests.support import House, plan_of, shell_task, wait_until

STAND_IN = """#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word"; done > {told}.new
mv {told}.new {told}."$$"
"""


def test_who_is_here_is_told_once_of_who_needs_them_and_no_text_of_agents_is_evaluated(house: House, tmp_path: Path) -> None:
    told, programs, owned = tmp_path / "told", tmp_path / "programs", tmp_path / "owned"
    programs.mkdir()
    (programs / "notify-send").write_text(STAND_IN.format(told=told))
    (programs / "notify-send").chmod(0o755)
    house.config.write_text(f'{house.config.read_text()}[notify]\nhere = ["bell", "tmux", "desktop"]\ntext = true\n')
    env = {"PATH": f"{programs}:{os.environ['PATH']}"}
    daemon = house.start_daemon(env=env)
    house.ok("run", "-d", house.plan(plan_of([shell_task("agent", "sleep 600"), shell_task("other", "sleep 600")])))
    wait_until(lambda: [house.task(name).attempt_state for name in ("agent", "other")] == ["running"] * 2, "both")
    here = Terminal(tmp_path / "t", house, columns=250)
    try:
        here.nightcrew("attach", "other")
        here.sees("leaves: it goes on")
        asks(house, "agent", f"#(touch {owned}) #{{pid}} %H #[fg=red] <b>x</b> \\033")
        here.sees(f"{house.task('agent').id} needs you: waiting permission: Bash: # (touch {owned}) # {{pid}} %H # [fg=red] <b>x</b>")
        wait_until(lambda: here.rang(), "the bell")
        wait_until(lambda: len(notifications(told)) == 1, "the desktop")
        asks(house, "other", "true")  # which a person looks at
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        house.start_daemon(env=env)
        house.ok("add", "--id", "bad", "exit 1")
        wait_until(lambda: len(notifications(told)) == 2, "the next message")
    finally:
        here.close()
    (first, second) = sorted(notifications(told), reverse=True)
    assert first[:3] == ["--app-name=nightcrew", "--", "nightcrew: needs you"]
    assert "&lt;b&gt;x&lt;/b&gt; \\\\033" in first[3] and "<" not in first[3]
    assert second[2:] == ["nightcrew: failed", f"{house.task('bad').id}: failed: exit code 1"], "neither again, nor what is looked at"
    assert not owned.exists()
    rows = [
        row["data"] for row in json.loads(house.ok("audit", "show", "--json", "-n", "1000"))["entries"] if row["decision"] == "notified"
    ]
    assert [(row["what"], row["here"], row["outcome"]) for row in rows] == [
        ("nightcrew: needs you", 3, "sent"), ("nightcrew: failed", 3, "sent"),
    ]  # fmt: skip
    assert all(row["after_s"] >= ASKED_S for row in rows[:1])
    assert json.loads(house.ok("notify", "status", "--json"))["here"]["told"] == 2


def asks(house: House, name: str, command: str) -> None:
    """A hook of its agent says that it wants to run a command."""
    token = attempt_tokens.derive(secrets.own(house.home.secret), house.task(name).id, 1)
    event = {"session_id": name, "tool_name": "Bash", "tool_input": {"command": command}}
    protocol.call(house.home.agents_socket, "hook", {"name": "PermissionRequest", "event": event}, timeout_s=30, token=token)


def notifications(told: Path) -> list[list[str]]:
    return [file.read_text().split("\0")[:-1] for file in told.parent.glob("told.[0-9]*")]


class Shown:
    """Stands for the places: it notes what they are given."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.why = ""

    async def post(self, receivers: Iterable[Receiver], title: str, body: str, environ: Mapping[str, str]) -> dict[str, str]:
        del body, environ
        self.titles.append(title)
        return {one.name: self.why for one in receivers}


def test_what_was_shown_when_a_supervisor_was_killed_is_not_shown_later_and_what_failed_is_not_tried_again(tmp_path: Path) -> None:
    wall, shown, lasting = Wall(), Shown(), [Notice(Kind.NEEDS_PERSON, "needs r/a", "r/a needs you", 5.0)]
    clock: Any = SimpleNamespace(wall=lambda: wall.now, monotonic=lambda: wall.now)

    async def goes_on() -> list[Notice]:
        return lasting

    with closing(Ledger(tmp_path / "ledger.db", wall)) as ledger:

        def supervisor(post: Any) -> Notifying:
            terms = Terms((Receiver("desktop", "desktop"),), pace=HERE)
            return Notifying(tmp_path / "notices-here.json", terms, clock, Sources(ledger, goes_on, shown.titles.append, {}, post))

        async def dies(*_: object) -> dict[str, str]:
            raise KeyboardInterrupt

        first = supervisor(dies)
        assert asyncio.run(first.look())
        wall.now += ASKED_S
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(first.look())
        second = supervisor(shown.post)
        wall.now += AGAIN_S - 1
        asyncio.run(second.look())
        assert shown.titles == []
        shown.why = "no desktop"
        lasting.append(Notice(Kind.NEEDS_PERSON, "needs r/b", "r/b needs you", 5.0))
        for _ in range(4):
            asyncio.run(second.look())
            wall.now += 20
        assert shown.titles.count("nightcrew: needs you") == 1 and "no desktop" in str(shown.titles), "one try, and it is said"


def test_a_hook_that_asks_wakes_who_tells_and_another_one_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wake-up this waits for an hour."""
    monkeypatch.setattr(notify_service, "LOOK_S", 3600.0)

    async def play() -> list[str]:
        looked, over = list[str](), asyncio.Event()
        loop: Any = SimpleNamespace(agents=SimpleNamespace(asked=asyncio.Event()), ready=True, alert=looked.append)
        heard = AgentEvidence(Home(tmp_path), SystemClock(), loop.agents.asked.set)
        Home(tmp_path).attempt("r/a", 1).mkdir(parents=True)

        async def look() -> bool:
            looked.append(name)
            over.set()
            return False

        task = asyncio.create_task(notify_service._run(loop, [look], over))
        for name in ("SessionStart", "UserPromptSubmit", "PermissionRequest"):
            heard.hook(("r/a", 1), name, {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "x"}})
            await asyncio.sleep(0)
        await task
        return looked

    assert asyncio.run(play()) == ["PermissionRequest"]


@pytest.mark.parametrize(
    ("installed", "argv"),
    [
        ("notify-send terminal-notifier", ["notify-send", "--app-name=nightcrew", "--", "-t", "a &lt;b&gt; &amp; \\\\n"]),
        ("terminal-notifier osascript", ["terminal-notifier", "-title", "-t", "-message", "\u200ba <b> & \\n", "-group", "nightcrew"]),
        ("osascript", ["osascript", "-e", "on run argv", "-e", "…", "-e", "end run", "-t", "a <b> & \\n"]),
        ("", []),
    ],
)
def test_each_desktop_is_given_text_and_no_options(installed: str, argv: list[str]) -> None:
    def find(program: str) -> str | None:
        return program if program in installed.split() else None

    made = notify_service.desktop_argv("-t", "a <b> & \\n", find)
    assert [word if not word.startswith("display") else "…" for word in made] == argv
