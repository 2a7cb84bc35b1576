"""How many requests a map's worker has under way at an inference engine."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from agents.conversation import DEFAULT_MODEL
from supervisor.features.map.commands import AT_ONCE, MapAsked, what
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.engines import EngineRecord, EngineState
from supervisor.kernel.errors import UsageError
from tests.gateway.kit import upstream

ENGINE = '[engine.box]\nkind = "adopted"\nurl = "http://127.0.0.1:9"\nmodels = ["qwen"]\nslots = 3\n'
BY_WORK = f'[[route]]\nmodel = "{DEFAULT_MODEL}"\nwork = "trivial"\nupstream = "box"\nas = "qwen"\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Settings with a provider and an engine."""
    made = Home(tmp_path / "home")
    files.private_dir(made.engines)
    monkeypatch.setenv("NIGHTCREW_HOME", str(made.root))
    config = tmp_path / "config.toml"
    monkeypatch.setenv("NIGHTCREW_CONFIG", str(config))
    config.write_text(upstream(made, "http://127.0.0.1:9", more='models = ["claude-*"]') + ENGINE)
    return made


def asked(**facts: Any) -> MapAsked:
    shape: dict[str, Any] = dict.fromkeys(field.name for field in fields(MapAsked))
    given = {"prompt": "Count {line}", "max_tokens": 10, "retries": 1, "task_class": "batch", "agents": 8, "economy": False}
    return MapAsked(**{**shape, **given, **facts})


def write_record(home: Home, slots: int) -> None:
    record = EngineRecord("box", EngineState.READY, url="http://127.0.0.1:9", slots=slots)
    files.atomic_write(home.engines / "box.json", json.dumps(asdict(record)).encode())


def test_each_worker_fills_the_engines_slots_as_the_engine_says_or_else_the_settings(home: Home) -> None:
    assert what(asked(model="claude-opus-4-8"), "line")["at_once"] == AT_ONCE
    assert what(asked(model="qwen"), "line")["at_once"] == 3
    write_record(home, 16)
    assert what(asked(model="qwen"), "line")["at_once"] == 16
    write_record(home, 0)
    assert what(asked(model="qwen"), "line")["at_once"] == 3, "it is not known yet what it will have"


def test_a_route_by_the_weight_of_work_leads_a_map_to_the_engine(home: Home) -> None:
    write_record(home, 16)
    assert what(asked(), "line")["at_once"] == AT_ONCE
    config = home.root.parent / "config.toml"
    config.write_text(config.read_text() + BY_WORK)
    assert what(asked(), "line")["at_once"] == 16
    assert what(replace(asked(), kind="claude", shard=1), "line")["executor"] == "agents"


def test_an_engine_is_asked_in_no_batches(home: Home) -> None:
    with pytest.raises(UsageError, match="no batches"):
        what(asked(model="qwen", economy=True), "line")
    assert "group" in what(asked(model="claude-opus-4-8", economy=True), "line")
