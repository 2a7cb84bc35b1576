"""An engine's process from its first need to its end. A test makes the watch's steps itself; the processes are real."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from supervisor.features.engines import service
from supervisor.features.engines.service import EngineWatch
from supervisor.gateway import engines as records
from supervisor.host import files, processes, procfs
from supervisor.kernel.engines import EngineKind, EngineState
from supervisor.kernel.errors import DiskFull, Refused
from tests.engines.kit import Engines, Llama
from tests.support import wait_until

READY, STARTING, STOPPED, FAILED = EngineState.READY, EngineState.STARTING, EngineState.STOPPED, EngineState.FAILED


def ready(engines: Engines) -> EngineWatch:
    """A watch whose engine serves."""
    engines.need()
    watch = engines.watch()
    engines.until(watch, READY)
    return watch


def test_it_starts_when_it_is_needed_and_says_what_it_serves(engines: Engines, llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "LLAMA_ARG_HOST", "LLAMA_API_KEY"):
        monkeypatch.setenv(name, "not for an engine")
    watch = engines.watch()
    watch.step()
    assert engines.living() == []
    engines.need()
    engines.until(watch, READY)
    found = records.read(engines.home, "small")
    assert found == watch.record
    assert found is not None
    assert (found.slots, found.context, found.tools, found.differences) == (2, 1024, True, ())
    assert found.identity is not None
    listening = [one.laddr for one in psutil.Process(found.identity.pid).net_connections() if one.status == psutil.CONN_LISTEN]
    assert [f"http://{place[0]}:{place[1]}" for place in listening] == [found.url]
    assert found.url.startswith("http://127.0.0.1:")
    environment = procfs.slurp(f"/proc/{found.identity.pid}/environ")
    assert b"not for an engine" not in environment
    assert b"HF_HUB_OFFLINE=1" in environment
    argv = engines.log().splitlines()[0]
    assert f"--slot-save-path {engines.home.engines}/small.slots/ " in argv
    assert "--swa-full" in argv and "--offline" in argv and "--ctx-size 2048" in argv
    assert os.getpriority(os.PRIO_PROCESS, found.identity.pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_what_it_serves_otherwise_than_asked_is_in_the_record(engines: Engines, llama: Llama) -> None:
    llama.mode("fewer")
    watch = ready(engines)
    assert watch.record.differences == ("slots: 2 asked, 1 served", "context of a slot: 1024 asked, 512 served")
    assert (engines.record()["slots"], engines.record()["context"]) == (1, 512)


def test_the_next_watch_goes_on_with_it_and_ends_it(engines: Engines, llama: Llama) -> None:
    first = ready(engines).record
    after = engines.watch()
    assert after.record == first
    after.step()
    assert after.record == first
    assert after.stop()
    assert engines.living() == []
    assert engines.record()["state"] == STOPPED


@pytest.mark.parametrize("record", ["", "{", '{"name": "small", "state": "dancing"}', "other"])
def test_one_without_a_record_of_its_own_is_ended_before_another_starts(engines: Engines, llama: Llama, record: str) -> None:
    """As when a supervisor is killed between the start and the record, or somebody writes another process into it."""
    first = ready(engines).record
    if record == "other":
        mine = processes.identity(os.getpid())
        assert mine is not None
        shape = {**engines.record(), "identity": {"pid": mine.pid, "ticks": mine.ticks, "boot_id": mine.boot_id}}
        record = json.dumps(shape)
    (engines.home.engines / "small.json").write_text(record)
    after = engines.watch()
    engines.until(after, READY)
    assert after.record.identity is not None
    assert engines.living() == [after.record.identity.pid]
    assert after.record.identity != first.identity


def test_one_that_is_killed_says_so_and_starts_again(engines: Engines, llama: Llama) -> None:
    watch = ready(engines)
    killed = watch.record.identity
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    engines.until(watch, FAILED)
    assert watch.record.why.startswith("it was killed (signal 9): the machine had no memory left, or somebody killed it")
    assert (watch.record.url, watch.record.identity) == ("", None)
    engines.until(watch, READY)
    assert watch.record.why == ""
    assert watch.record.identity != killed


@pytest.mark.parametrize(
    ("mode", "why"),
    [("corrupt", "its weights cannot be loaded: 0.00 E llama_model_load"), ("taken", "another process has its port: OSError: [Errno 98]")],
)
def test_one_that_cannot_start_has_a_plain_reason_and_waits_longer_each_time(engines: Engines, llama: Llama, mode: str, why: str) -> None:
    llama.mode(mode)
    engines.need()
    watch = engines.watch()
    engines.until(watch, FAILED)
    assert watch.record.why.startswith(why)
    assert engines.said == []
    engines.until(watch, STARTING)  # the first failure is tried again at once
    engines.until(watch, FAILED)
    assert [said.partition(":")[0] for said in engines.said] == ["the engine small does not stay up"]
    watch.step()
    assert watch.record.state is FAILED  # the pause has begun
    llama.mode("well")
    engines.until(watch, READY)


def test_weights_that_are_not_there_are_not_looked_for_elsewhere(engines: Engines, llama: Llama) -> None:
    engines.weights.unlink()
    engines.need()
    watch = engines.watch()
    engines.until(watch, FAILED)
    assert watch.record.why == f"no file at {engines.weights}: nightcrew downloads no weights"


@pytest.mark.parametrize(
    ("kind", "why"),
    [(EngineKind.VLLM, "vllm is not installed: it is not on the PATH"), (EngineKind.SGLANG, "No module named 'sglang'")],
)
def test_a_program_that_is_not_installed_is_named(engines: Engines, kind: EngineKind, why: str) -> None:
    engines.need()
    watch = engines.watch(engines.engine(kind=kind))
    engines.until(watch, FAILED)
    assert why in watch.record.why


def test_it_stops_when_nobody_has_used_it(engines: Engines, llama: Llama) -> None:
    watch = ready(engines)
    engines.need(ago_s=watch.engine.idle_s + 1)
    engines.until(watch, STOPPED)
    assert engines.living() == []
    watch.step()
    assert engines.living() == []


def test_a_request_that_comes_while_it_is_about_to_stop_keeps_it(engines: Engines, llama: Llama) -> None:
    watch = ready(engines)
    before = watch.record
    engines.need(ago_s=watch.engine.idle_s + 1)
    stopping = threading.Thread(target=watch.step)
    stopping.start()
    wait_until(lambda: engines.record()["state"] == STOPPED, "the record to say that it stops", every_s=0.005)
    engines.need()
    stopping.join()
    assert watch.record == before
    assert before.identity is not None and engines.living() == [before.identity.pid]


def test_one_that_a_person_stops_stays_stopped_until_the_next_need(engines: Engines, llama: Llama) -> None:
    watch = ready(engines)
    assert watch.stop()
    watch.step()
    assert (watch.record.state, engines.living()) == (STOPPED, [])
    assert not watch.stop()
    engines.need()
    engines.until(watch, READY)


def test_other_settings_start_it_anew(engines: Engines, llama: Llama) -> None:
    watch = ready(engines)
    before = watch.record.identity
    watch.engine = engines.engine(slots=3, options={"threads": 7})
    engines.until(watch, STOPPED)
    engines.until(watch, READY)
    assert watch.record.slots == 3
    assert watch.record.identity != before
    assert "--threads 7" in engines.log().splitlines()[0]


def test_one_that_does_not_answer_is_killed(engines: Engines, llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUNG_S", "ASK_S"):
        monkeypatch.setattr(service, name, 0.0)
    monkeypatch.setattr(service, "QUESTION_S", 0.05)
    watch = ready(engines)
    assert watch.record.identity is not None
    os.kill(watch.record.identity.pid, signal.SIGSTOP)
    engines.until(watch, FAILED)
    assert watch.record.why.startswith("it did not answer for ")
    assert engines.living() == []


def test_its_log_is_bounded(engines: Engines, llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ASK_S", 0.0)
    watch = ready(engines)
    log = engines.home.engines / "small.log"
    with log.open("ab") as file:
        file.write(b"x" * service.LOG_MAX)
    watch.step()
    assert log.stat().st_size == 0
    assert (engines.home.engines / "small.log.1").stat().st_size > service.LOG_MAX


def test_a_record_that_cannot_be_written_is_written_later(engines: Engines, llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ready(engines)
    before = watch.record
    engines.need(ago_s=watch.engine.idle_s + 1)
    with monkeypatch.context() as full:
        full.setattr(files, "atomic_write", _full)
        with pytest.raises(DiskFull):
            watch.step()
    assert watch.record == before
    engines.until(watch, STOPPED)


def _full(*_: Any, **__: Any) -> None:
    raise DiskFull("cannot write")


# Adopted
# -------


class _Page(BaseHTTPRequestHandler):
    """Answers what a test says, by path."""

    answers: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        """Of the standard library's class."""
        body = self.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(answers: Mapping[str, bytes]) -> Iterator[str]:
    """A server that the person runs; its URL."""
    page = type("Page", (_Page,), {"answers": dict(answers)})
    with ThreadingHTTPServer(("127.0.0.1", 0), page) as server:
        work = threading.Thread(target=server.serve_forever)
        work.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        work.join()


def test_an_adopted_engine_is_asked_and_never_ended(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ASK_S", 0.0)
    with serving({"/v1/models": json.dumps({"data": [{"id": "qwen", "meta": {"n_ctx": 9000}}]}).encode()}) as url:
        watch = engines.watch(engines.engine(kind=EngineKind.ADOPTED, model="", url=url))
        engines.until(watch, READY)
        assert (watch.record.url, watch.record.slots, watch.record.context, watch.record.identity) == (url, 2, 9000, None)
        with pytest.raises(Refused, match="it is adopted"):
            watch.stop()
    engines.until(watch, FAILED)
    assert watch.record.why == f"{url} does not answer /v1/models"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"data": [{"max_model_len": 1e400}]}',
        b'{"data": [{"max_model_len": -4}]}',
        b"null",
        b"x" * 3 * 2**20,
    ],
    ids=["empty", "bytes", "deep", "infinite", "negative", "null", "large"],
)
def test_whatever_an_engine_answers_is_data(engines: Engines, body: bytes) -> None:
    with serving({"/v1/models": body, "/props": body}) as url:
        watch = engines.watch(engines.engine(kind=EngineKind.ADOPTED, model="", url=url))
        engines.until(watch, READY)
    assert (watch.record.slots, watch.record.context, watch.record.differences) == (2, 1024, ())


def test_an_engine_that_left_the_settings_is_ended_and_forgotten(engines: Engines, llama: Llama, tmp_path: Path) -> None:
    watch = ready(engines)
    assert watch.record.identity is not None
    assert records.names(engines.home) == ["small"]
    assert records.forget(engines.home, "small") == f"the engine small (pid {watch.record.identity.pid})"
    assert (engines.living(), records.names(engines.home)) == ([], [])
    assert records.forget(engines.home, "small") == ""
