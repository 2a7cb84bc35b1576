"""llama.cpp itself, from the package xllamacpp, with a model of random weights."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.kernel.engines import EngineState
from tests.engines import tiny_gguf
from tests.engines.kit import Engines


@pytest.fixture
def real(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Weights that it loads; no `llama-server` is on the PATH."""
    tiny_gguf.write(engines.weights)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return engines


def ask(url: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
    connection.request("POST" if body is not None else "GET", path, json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, found
    return found


def test_it_serves_what_was_asked(real: Engines) -> None:
    options: dict[str, Any] = {"threads": 1, "cache_type_k": "q8_0", "n-batch": 256}
    real.need()
    watch = real.watch(real.engine(options=options))
    real.until(watch, EngineState.READY)
    found = watch.record
    assert (found.slots, found.context, found.tools, found.differences) == (2, 1024, True, ())
    assert found.kv_bytes == 4 * 1 * 2 * 32, "one layer, two heads of 32 numbers"
    said = {"role": "user", "content": "hello"}
    answer = ask(found.url, "/v1/chat/completions", {"messages": [said], "max_tokens": 4, "id_slot": 1, "ignore_eos": True})
    assert answer["usage"]["completion_tokens"] == 4
    message = ask(found.url, "/v1/messages", {"model": "small", "messages": [said], "max_tokens": 4})
    assert message["type"] == "message"
    assert ask(found.url, "/slots/1?action=save", {"filename": "one.bin"})["n_saved"] > 0
    assert (real.home.engines / "small.slots" / "one.bin").exists()
    log = real.log()
    assert "n_threads = 1" in log
    assert watch.stop()
    assert real.living() == []


@pytest.mark.parametrize(
    ("options", "why"),
    [({"n_cxt": 5}, "xllamacpp has no option 'n_cxt' that takes 5"), ({"cache_type_k": "q9"}, "xllamacpp has no option 'cache_type_k'")],
)
def test_an_option_that_it_has_not_is_named(real: Engines, options: dict[str, Any], why: str) -> None:
    real.need()
    watch = real.watch(real.engine(options=options))
    real.until(watch, EngineState.FAILED)
    assert watch.record.why.startswith(why)


def test_weights_that_are_damaged_have_a_plain_reason(real: Engines) -> None:
    real.weights.write_bytes(real.weights.read_bytes()[:100_000])
    real.need()
    watch = real.watch()
    real.until(watch, EngineState.FAILED)
    assert watch.record.why.startswith("its weights cannot be loaded: ")


def test_a_template_without_tools_is_told(real: Engines, tmp_path: Path) -> None:
    tiny_gguf.write(real.weights, template="")
    real.need()
    watch = real.watch()
    real.until(watch, EngineState.READY)
    assert not watch.record.tools
    assert watch.record.differences == ("the chat template takes no tools: requests with tools are refused",)
