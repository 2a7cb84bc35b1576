"""Engines of a whole supervisor: agents ask the gateway, supervisors die, and the verbs show what is."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway import engines as records
from supervisor.host import processes
from supervisor.kernel.engines import EngineRecord, EngineState
from tests.engines.kit import Llama
from tests.support import House, shell_task, wait_until

ASK = '''
"""Asks the engine until it answers. Says each line of the stream that comes, and how each try ended."""
import json, os, sys, time, urllib.error, urllib.request

def ask():
    body = {"model": "small", "stream": True, "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            print(line.decode().strip(), flush=True)
            if line.strip() == b"data: [DONE]":
                return True
    return False

while True:
    try:
        if ask():
            break
        print("it broke off", flush=True)
    except (OSError, urllib.error.URLError) as error:
        print("it failed", error, flush=True)
    time.sleep(0.05)
'''


class Crew:
    """A house with the engine `small`, which is the stand-in."""

    def __init__(self, house: House, llama: Llama, place: Path) -> None:
        self.house, self.llama = house, llama
        (place / "weights.gguf").write_bytes(b"GGUF")
        (place / "ask.py").write_text(ASK)
        self.ask = f"{sys.executable} {place / 'ask.py'}"
        with house.config.open("a") as file:
            file.write(f'[engine.small]\nmodel = "{place / "weights.gguf"}"\nslots = 2\ncontext = 1024\n')

    def start(self) -> Any:
        """A supervisor that finds the stand-in first."""
        return self.house.start_daemon(env={"PATH": self.llama.path})

    def record(self) -> EngineRecord:
        """The engine's record once it serves."""
        wait_until(lambda: (found := records.read(self.house.home, "small")) and found.state is EngineState.READY, "the engine to serve")
        found = records.read(self.house.home, "small")
        assert found is not None
        return found

    def need(self) -> None:
        """As the gateway says it."""
        wait_until(self.house.home.engines.is_dir, "the directory of engines")
        records.need_file(self.house.home, "small").touch()

    def living(self) -> list[int]:
        """Pids of the engine's processes."""
        return [who.pid for who in processes.tagged(records.tag(self.house.home, "small"))]

    def said(self, name: str) -> str:
        """What a task printed so far."""
        return self.house.run("logs", name).stdout


@pytest.fixture
def crew(house: House, llama: Llama, tmp_path: Path) -> Iterator[Crew]:
    """The engine is ended afterwards, when no supervisor can start it again."""
    yield Crew(house, llama, tmp_path)
    house.reap()
    records.stop(house.home, "small", None, 0.0)


def test_an_agent_is_answered_and_the_engine_outlives_its_supervisor(crew: Crew) -> None:
    daemon = crew.start()
    crew.house.ok("run", "-d", crew.house.plan(shell_task("ask", crew.ask)))
    crew.house.wait_final()
    assert crew.house.state("ask") == "done", crew.said("ask")
    before = crew.record()
    daemon.kill()
    daemon.wait()
    crew.start()
    second = crew.house.run("up", env={"PATH": crew.llama.path})
    assert second.returncode == 6, second.stderr
    shown = json.loads(crew.house.ok("engine", "ls", "--json"))["engines"]
    assert [(one["name"], one["state"], one["slots"], one["asked"]["context"]) for one in shown] == [("small", "ready", 2, 1024)]
    assert before.identity is not None and crew.living() == [before.identity.pid]
    lines = crew.house.ok("engine", "ls").splitlines()
    assert lines[1].split() == ["small", "llamacpp", "ready", "2", "1024", "yes", before.url]
    assert before.url in crew.house.ok("engine", "show", "small")
    assert "--slot-save-path" in crew.house.ok("engine", "log", "small")
    crew.house.ok("engine", "stop", "small")
    assert crew.living() == []
    assert json.loads(crew.house.ok("engine", "show", "small", "--json"))["state"] == "stopped"
    wrong = crew.house.run("engine", "stop", "smal")
    assert (wrong.returncode, "did you mean small?" in wrong.stderr) == (4, True)


def test_an_answer_that_breaks_off_is_given_by_the_next_process(crew: Crew) -> None:
    crew.llama.mode("held")
    crew.start()
    crew.house.ok("run", "-d", crew.house.plan(shell_task("ask", crew.ask)))
    wait_until(lambda: "Hello" in crew.said("ask"), "the first token")
    found = crew.record()
    assert found.identity is not None
    crew.llama.mode("well")
    os.kill(found.identity.pid, signal.SIGKILL)
    crew.house.wait_final()
    assert crew.house.state("ask") == "done"
    assert "it " in crew.said("ask")
    assert crew.record().identity != found.identity


def test_settings_and_down_end_it(crew: Crew) -> None:
    crew.start()
    crew.need()
    crew.record()
    crew.house.ok("down")
    assert crew.living() == []
    crew.start()
    crew.need()
    crew.record()
    crew.house.config.write_text(crew.house.config.read_text().partition("[engine.small]")[0])
    wait_until(lambda: crew.living() == [], "the engine to be ended")
    wait_until(lambda: records.names(crew.house.home) == [], "its record to be removed")
