"""Spans leave the machine: each arrives once, whoever is killed, and what the receiver does not want costs nothing but itself."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nightcrew.plugins.otel import cursor, export, service
from supervisor.features.trace.rules import Span
from supervisor.host import files, processes
from supervisor.kernel.errors import ToolMissing
from supervisor.kernel.telemetry import Cursor, Terms
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.server import trace_kit
from tests.support import House, wait_until
from tests.views.traces.receiver import HOLD, Receiver


def _exporters(house: House) -> list[int]:
    return [who.pid for who in processes.all_running("-m", service.MODULE, "--home", str(house.home.root))]


def _settings(house: House, sim: str, receiver: Receiver, more: str = "") -> None:
    where = f'[telemetry]\nendpoint = "{receiver.url}"\nheaders = {{ x-token = "env:SPAN_TOKEN" }}\n{more}'
    house.config.write_text(f"[limits]\ndisk_free_min = 0\n{upstream(house.home, sim)}{where}")


def test_each_span_arrives_through_every_kill_and_is_what_a_person_is_told(house: House, tmp_path: Path) -> None:
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as sim, Receiver() as receiver:
        _settings(house, sim.url, receiver)
        trace_kit.script(sim)
        receiver.status = HOLD
        environment = {"SPAN_TOKEN": "a-secret"}
        daemon = house.start_daemon(env=environment, words=("up", "--log-format", "json"))
        house.ok("run", "--detach", house.plan(trace_kit.PLAN))
        wait_until(lambda: receiver.posts[HOLD], "a post that nobody answers")
        (exporter,) = _exporters(house)
        os.kill(exporter, signal.SIGKILL)
        receiver.status = 503
        wait_until(lambda: "spans are not taken" in house.daemon_output(), "the trouble to be said")
        house.wait_final()
        os.kill(daemon.pid, signal.SIGKILL)  # its exporter ends with it, and another takes over where it was
        daemon.wait()
        receiver.status = 200
        house.start_daemon(env=environment)
        run = house.task("agent").run
        expected = {span["id"] for span in json.loads(house.ok("trace", run, "--json"))["spans"]}
        wait_until(lambda: expected <= set(receiver.taken), "every span to arrive")
    assert set(receiver.taken) == expected
    assert {len(forms) for forms in receiver.forms.values()} == {1}, "a span that was sent again was the same"
    assert all(sent["x-token"] == "a-secret" for sent in receiver.headers)
    assert "a-secret" not in house.daemon_output() + house.home.log.read_text()
    assert [json.loads(line)["logger"] for line in house.home.gateway_log.read_text().splitlines()], "the gateway is told, too"
    by_id = {span.span_id: span for span in receiver.spans()}
    for span in by_id.values():
        parent = by_id.get(span.parent_span_id, span)
        assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= parent.end_time_unix_nano
    assert len({span.trace_id for span in by_id.values()}) == 1
    texts = [(value.key, value.value.string_value) for span in by_id.values() for value in span.attributes]
    assert {text for key, text in texts if key == "gen_ai.tool.name"} == {"bash", "write"}
    assert "gen_ai.tool.call.arguments" not in dict(texts), "content stays here"
    _refusals(house, expected)
    house.ok("retry", "fails")
    house.wait_final()
    trace_kit.check_trace(house, run, tmp_path / "trace.json")


class Picky:
    """Takes no span of this name, ever, and nothing at all while it is told so."""

    def __init__(self, unwanted: str, *, down: Callable[[], bool]) -> None:
        self.unwanted, self.down = unwanted, down
        self.status: int | None = None
        self.why, self.rejected = "", 0
        self.got: list[str] = []

    def __call__(self, spans: Sequence[Span]) -> bool:
        self.status = None if self.down() else 400 if any(span.name == self.unwanted for span in spans) else 200
        self.why = "bad span" if self.status == 400 else ""
        self.got += [span.id for span in spans] if self.status == 200 else []
        return self.status == 200


def _refusals(house: House, expected: set[str]) -> None:
    """What one receiver refuses for good keeps nothing else back; what it cannot take now is sent later, and the pauses grow."""
    said: list[str] = []
    downs = iter([True, True, *[False] * 999])
    post = Picky("task fails", down=lambda: next(downs))
    cursor.keep(house.home.telemetry, Cursor())
    wall = 0.0
    exporter = export.Exporter(house.home, Terms("http://x/v1/traces"), post, lambda: wall, said.append)
    assert [exporter.step() for _ in range(2)] == [2.0, 4.0]
    assert cursor.kept(house.home.telemetry) == Cursor() and len(said) == 1, "the same trouble is said once"
    while exporter.step() == 0.0:
        pass
    assert len(post.got) == len(set(post.got)) == len(expected) - 1
    kept = cursor.kept(house.home.telemetry)
    assert kept is not None and (kept.refused, kept.open) == (1, ()) and kept.journal > 0
    assert "refused 1 span for good: bad span" in said[1] and said[-1] == "spans are taken again"
    none = export.Exporter(house.home, Terms("http://x/v1/traces", sample=0.0), post, lambda: wall, said.append)
    cursor.keep(house.home.telemetry, Cursor())
    before = len(post.got)
    none.step()
    assert len(post.got) == before, "no run is in a sample of nothing"


def test_it_says_what_is_missing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ToolMissing, match=r"nightcrew\[otel\]"):
        service.require()
    monkeypatch.undo()
    house.config.write_text('[telemetry]\nendpoint = "http://127.0.0.1:9"\nheaders = { a = "env:NOT_THERE" }\n')
    house.start_daemon(words=("up", "--log-format", "json"))
    wait_until(lambda: "NOT_THERE is not set" in house.daemon_output(), "the header to be missed")
    said = [json.loads(line) for line in house.daemon_output().splitlines()]
    (told,) = [one for one in said if "NOT_THERE" in one["message"]]
    assert (told["level"], told["logger"], told["error"]["class"]) == ("warning", "nightcrew.supervisor", "NotFound")
    assert told["error"]["on"] == "[telemetry] headers" and "NOT_THERE" in told["error"]["why"]
    logged = [json.loads(line) for line in house.home.log.read_text().splitlines()]
    assert "the supervisor begins" in logged[0]["message"] and told in [{**one, "time": told["time"]} for one in logged]
    assert not _exporters(house)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('endpoint = "127.0.0.1:4318"', "receiver of OTLP"),
        ('endpoint = "http://user:secret@host"', "without user"),
        ('endpoint = "http://h"\nheaders = { a = "secret" }', "env:NAME"),
        ('endpoint = "http://h"\nheaders = { "a b" = "env:A" }', "no name of a header"),
        ("sample = 1.5", "sample"),
    ],
)
def test_settings_that_are_off(tmp_path: Path, text: str, why: str) -> None:
    from supervisor.config import user
    from supervisor.kernel.errors import ConfigError

    file = tmp_path / "config.toml"
    file.write_text(f"[telemetry]\n{text}\n")
    with pytest.raises(ConfigError, match=why):
        user.load_telemetry(file)
    with contextlib.suppress(FileNotFoundError):
        file.unlink()
    assert user.load_telemetry(file) == Terms()
