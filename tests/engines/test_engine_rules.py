"""Decisions about engines, what is read of their answers and logs, and which options a person may set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.config import user
from supervisor.features.engines import programs, rules
from supervisor.features.engines.rules import Act, Look, Said
from supervisor.kernel.engines import Engine, EngineKind, EngineRecord, EngineState, option_refusal
from supervisor.kernel.errors import ConfigError

SMALL = Engine("small", EngineKind.LLAMACPP, "model.gguf", models=("small",), slots=2, context=1024, idle_s=60)
SIZES = {"total_slots": 2, "default_generation_settings": {"n_ctx": 512}}
READY = EngineRecord("small", EngineState.READY, url="http://127.0.0.1:1", settings=SMALL.digest)


def look(**more: Any) -> Look:
    return replace(Look(SMALL, READY, alive=True, unused_s=1.0, may_start=True), **more)


@pytest.mark.parametrize(
    ("seen", "act"),
    [
        (look(), Act.ASK),
        (look(unused_s=60.0), Act.STOP),
        (look(unused_s=None), Act.STOP),
        (look(unused_s=1e6, engine=replace(SMALL, idle_s=0)), Act.ASK),
        (look(unused_s=-5.0), Act.ASK),
        (look(engine=replace(SMALL, slots=3)), Act.STOP),
        (look(engine=replace(SMALL, idle_s=90.0), unused_s=80.0), Act.ASK),
        (look(alive=False), Act.BURY),
        (look(alive=False, record=replace(READY, state=EngineState.STARTING)), Act.BURY),
        (look(alive=False, record=replace(READY, state=EngineState.STOPPED)), Act.START),
        (look(alive=False, record=replace(READY, state=EngineState.FAILED)), Act.START),
        (look(alive=False, record=replace(READY, state=EngineState.FAILED), may_start=False), Act.REST),
        (look(alive=False, record=replace(READY, state=EngineState.STOPPED), unused_s=None), Act.REST),
        (look(alive=True, record=replace(READY, state=EngineState.STOPPED)), Act.ASK),
        (look(alive=False, engine=replace(SMALL, kind=EngineKind.ADOPTED)), Act.ASK),
        (look(alive=True, engine=replace(SMALL, kind=EngineKind.ADOPTED)), Act.STOP),
    ],
)
def test_what_is_done_follows_from_what_is_seen(seen: Look, act: Act) -> None:
    assert rules.decide(seen) is act


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (({**SIZES, "chat_template_caps": {"supports_tools": False}}, {}, None), (2, 512, False)),
        ((None, {"data": [{"max_model_len": 4096}]}, None), (0, 4096, None)),
        ((None, {"data": [{"meta": {"n_ctx": 2048}}]}, {"max_running_requests": 8}), (8, 2048, None)),
        (({"total_slots": True, "chat_template_caps": {"supports_tools": "no"}}, {"data": {}}, 3), (0, 0, None)),
        (({"total_slots": -1, "default_generation_settings": {"n_ctx": 2**40}}, {"data": [[]]}, "x"), (0, 0, None)),
        (("text", ["list"], None), (0, 0, None)),
    ],
)  # fmt: skip
def test_an_answer_of_another_shape_says_nothing(answers: tuple[Any, Any, Any], found: tuple[int, int, bool | None]) -> None:
    assert rules.said(*answers) == Said(*found)


def test_what_differs_is_told() -> None:
    assert rules.differences(SMALL, Said(2, 1024, tools=True)) == ()
    assert rules.differences(SMALL, Said()) == ()
    assert rules.differences(SMALL, Said(1, 512, tools=False)) == (
        "slots: 2 asked, 1 served",
        "context of a slot: 1024 asked, 512 served",
        "the chat template takes no tools: requests with tools are refused",
    )


@pytest.mark.parametrize(
    ("log", "code", "why"),
    [
        ("0.1 E srv load_model: failed to load model, 'x.gguf'\nRuntimeError: Failed\n", 1, "its weights cannot be loaded: 0.1 E srv"),
        ("E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1\n", 1, "another process has its port: E srv start"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried\n", 1, "it has not enough memory: torch"),
        ("no file at /x.gguf: nightcrew downloads no weights\n", 1, "no file at /x.gguf: nightcrew downloads no weights"),
        ("loading\n", -9, "it was killed (signal 9): the machine had no memory left, or somebody killed it; its last line: loading"),
        ("one\n\x1b[31mtwo\n\n", 3, "it ended with status 3; its last line: "),
        ("", None, "it ended; its last line: none"),
    ],
)  # fmt: skip
def test_an_end_has_a_plain_reason(log: str, code: int | None, why: str) -> None:
    found = rules.reason(log, code)
    assert found.startswith(why)
    assert "\x1b" not in found
    assert len(found) < 500


@pytest.mark.parametrize(
    "name",
    ["host", "port", "hos", "h", "api_key", "api-key-file", "hostnames", "config", "mcp_servers_json", "server_tools", "tools",
     "ssl_key_file", "uds", "model", "rpc", "cors_origins", "master-addr", "--host", "-H", "Host", "host ", "", "slot_save_path",
     "models_dir"],
)  # fmt: skip
def test_no_option_opens_another_door(name: str) -> None:
    assert option_refusal(name, "x")


@pytest.mark.parametrize("value", ["--host", "-H", ["a", "--host=0.0.0.0"], "-"])
def test_no_value_becomes_an_option(value: Any) -> None:
    assert option_refusal("chat-template", value)


@pytest.mark.parametrize(
    ("name", "value"), [("threads", -1), ("n_gpu_layers", "-1"), ("swa_full", False), ("gpu-memory-utilization", 0.5), ("lora", ["a", "b"])]
)
def test_other_options_are_the_persons(name: str, value: Any) -> None:
    assert option_refusal(name, value) == ""


def test_options_are_passed_under_the_engines_own_names() -> None:
    ours: dict[str, Any] = {"port": 1, "swa-full": True, "metrics": True, "threads": 2}
    given: dict[str, Any] = {"threads": 4, "swa_full": False, "mmap": False, "lora": ["a", "b"], "verbose": True}
    assert list(programs.flags(ours, given)) == ["--port", "1", "--metrics", "--threads", "4", "--no-mmap", "--lora", "a", "b", "--verbose"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[engine.a]\nmodel = 'm'\n[engine.a.options]\nhost = '0.0.0.0'", "nightcrew sets it"),
        ("[engine.a]\n", "has a model"),
        ("[engine.a]\nmodel = '--host'", "has a model"),
        ("[engine.a]\nmodel = 'm'\nurl = 'http://127.0.0.1:1'", "no url"),
        ("[engine.a]\nkind = 'adopted'", "a url is such as"),
        ("[engine.a]\nkind = 'adopted'\nurl = 'file:///etc'", "a url is such as"),
        ("[engine.a]\nkind = 'adopted'\nurl = 'http://me:pw@host'", "a url is such as"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=why):
        user.load_gateway(tmp_path / "config.toml")


def test_an_adopted_engine_has_its_url_without_the_version(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[engine.a]\nkind = 'adopted'\nurl = 'http://127.0.0.1:11434/v1/'")
    found = user.load_gateway(tmp_path / "config.toml").upstreams[0].engine
    assert found is not None
    assert (found.url, found.models) == ("http://127.0.0.1:11434", ("a",))


def test_weights_in_parts_are_put_together_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(("parted", "parted_part1", "parted_part2")):
        (tmp_path / name / "data").mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("")
        if number:
            (tmp_path / name / "data" / f"m.gguf.part0{number}").write_bytes(bytes([number]) * 3)
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "engines" / "small.slots"
    folder.mkdir(parents=True)
    found = programs.weights("package:parted", folder)
    assert found.read_bytes() == b"\1\1\1\2\2\2"
    written = found.stat().st_mtime_ns
    assert programs.weights("package:parted", folder).stat().st_mtime_ns == written
    found.write_bytes(b"\1\1")  # cut
    assert programs.weights("package:parted", folder).read_bytes() == b"\1\1\1\2\2\2"
    (tmp_path / "parted" / "whole.gguf").write_bytes(b"GGUF")
    assert programs.weights("package:parted", folder) == tmp_path / "parted" / "whole.gguf"


@pytest.mark.parametrize("model", ["package:no_such_package", "/no/such/file.gguf"])
def test_weights_that_are_not_there_are_named(tmp_path: Path, model: str) -> None:
    with pytest.raises(SystemExit, match=r"no weights in the package 'no_such_package'|no file at /no/such"):
        programs.weights(model, tmp_path)
