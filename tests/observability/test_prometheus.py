"""A real Prometheus scrapes a real crew by itself, and finds something for every panel of the board."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from supervisor.features.metrics import catalog
from supervisor.features.metrics import page as metrics_page
from supervisor.features.metrics.catalog import Counts, MetricType
from tests.observability.kit import OBSERVABILITY, Prometheus, prometheus, promtool
from tests.observability.test_documents import panels
from tests.server.test_answering import DIALOG
from tests.support import House, make_repository, plan_of, shell_task, wait_until

_VALUES = {
    "outcome": ("done", "failed", "partly"), "type": ("input", "cache_read"), "to": ("open",), "limit": ("tokens",), "kind": ("lease",),
    "end": ("failed",), "how": ("given_up",),
}  # fmt: skip
"""Of labels that the board asks for; of every other one its own name."""


def example(scrapes: int) -> bytes:
    """A page on which every metric has a value, and every counter has grown since the last scrape."""
    counts, gauges = Counts(), dict[str, dict[tuple[str, ...], float]]()
    for metric in catalog.every():
        for labels in itertools.product(*(_VALUES.get(label, (label,)) for label in metric.labels)):
            match metric.type:
                case MetricType.COUNTER:
                    counts.add(metric, *labels, by=scrapes)
                case MetricType.HISTOGRAM:
                    for _ in range(scrapes):
                        counts.observe(metric, *labels, value=2.0)
                case MetricType.GAUGE:
                    gauges.setdefault(metric.name, {})[labels] = float(metric is not catalog.SOURCE_UP)
    return metrics_page.render(counts, gauges)


class Example(BaseHTTPRequestHandler):
    scrapes = 0

    def do_GET(self) -> None:
        Example.scrapes += 1
        body = example(Example.scrapes)
        self.send_response(200)
        self.send_header("Content-Type", metrics_page.CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def example_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Example)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"  - job_name: example\n    static_configs:\n      - targets: ['127.0.0.1:{server.server_port}']\n"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True, slots=True)
class Place:
    house: House
    prometheus: Prometheus
    supervisor: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A crew of commands with no provider at all, whose person typed `metrics token` and `metrics config`; beside it the example."""
    root = tmp_path_factory.mktemp("observed")
    house = House(root, make_repository(root / "repo"))
    try:
        supervisor = house.start_daemon()
        token = Path(house.ok("metrics", "token").strip())
        assert (token.stat().st_mode & 0o777, token) == (0o600, house.home.metrics_token)
        tasks = [
            shell_task("a", "true"),
            shell_task("b", "false"),
            shell_task("c", "sleep 600"),
            shell_task("asks", DIALOG, kind="terminal"),
        ]
        house.ok("run", "--detach", house.plan(plan_of(tasks)))
        wait_until(lambda: house.gateway() is not None, "somebody to serve the page")
        job = house.ok("metrics", "config").replace("scrape_interval: 15s", "scrape_interval: 1s")
        with example_server() as more, prometheus(root / "prometheus", [job, more], OBSERVABILITY / "rules.yml") as found:
            yield Place(house, found, supervisor)
    finally:
        house.reap()


def test_prometheus_scrapes_a_crew_unaided(place: Place) -> None:
    found = place.prometheus
    wait_until(lambda: found.value('up{job="nightcrew"}') == 1, "a scrape")
    wait_until(lambda: found.value('nightcrew_tasks_total{job="nightcrew",outcome="done"}') == 1, "the task to be counted")
    wait_until(lambda: found.value('nightcrew_tasks_total{job="nightcrew",outcome="failed"}') == 1, "the other task to be counted")
    wait_until(lambda: found.value('nightcrew_supervisor_up{job="nightcrew"}') == 1, "the supervisor to say that it is there")
    assert found.value('nightcrew_tasks_open{job="nightcrew",state="running"}') == 2
    assert found.value('nightcrew_agent_state{job="nightcrew",agent="c",state="running"}') == 1
    wait_until(lambda: found.value('nightcrew_needs_human{job="nightcrew"}') == 1, "the one that asks to be seen")
    wait_until(lambda: found.value('nightcrew_agents{job="nightcrew",state="blocked_startup"}') == 1, "what keeps it")
    assert (found.value('nightcrew_needs_human_oldest_seconds{job="nightcrew"}') or 0) > 0
    assert found.value('sup_build_info{job="nightcrew"}') == 1, "the old names are there for one release"


def test_the_page_is_such_as_prometheus_wants_it(place: Place) -> None:
    text = place.house.ok("metrics", "show")
    new = "".join(line for line in text.splitlines(keepends=True) if "sup_" not in line)
    done = promtool("check", "metrics", text=new)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = promtool("check", "metrics", text=example(2).decode())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_counter_goes_back_when_gateway_and_supervisor_are_killed(place: Place) -> None:
    house, found = place.house, place.prometheus
    wait_until(lambda: found.value('nightcrew_attempts_started_total{job="nightcrew"}') == 4, "four starts to be counted")
    gateway = house.gateway()
    assert gateway is not None
    os.kill(place.supervisor.pid, signal.SIGKILL)
    os.kill(gateway.identity.pid, signal.SIGKILL)
    place.supervisor.wait()
    wait_until(lambda: found.value('up{job="nightcrew"}') == 0, "Prometheus to see that nobody is there")
    house.start_daemon()
    wait_until(lambda: found.value('up{job="nightcrew"}') == 1, "the next ones to be scraped, at the same port")
    house.ok("run", "--detach", house.plan(plan_of([shell_task("d", "true")]), "next.toml"))
    wait_until(lambda: found.value('nightcrew_attempts_started_total{job="nightcrew"}') == 5, "one more start to be counted")
    names = [one.name for one in catalog.every() if one.type is MetricType.COUNTER]
    names += [f"{one.name}_count" for one in catalog.every() if one.type is MetricType.HISTOGRAM]
    resets = {name: found.value(f'sum(resets({name}{{job="nightcrew"}}[5m]))') for name in names}
    assert {value for value in resets.values() if value is not None} == {0.0}, resets


def test_every_panel_of_the_board_finds_something(place: Place) -> None:
    found = place.prometheus
    board = json.loads((OBSERVABILITY / "board.json").read_text())
    wait_until(lambda: (found.value('count_over_time(up{job="example"}[1m])') or 0) >= 3, "three scrapes")
    empty = [
        (panel["title"], target["expr"])
        for panel in panels(board)
        for target in panel["targets"]
        if not found.query(target["expr"].replace("$__rate_interval", "1m"))
    ]
    assert empty == []


def test_prometheus_evaluates_the_rules(place: Place) -> None:
    alert = 'ALERTS{alertname="NightcrewSourceUnreadable",alertstate="pending"}'
    wait_until(lambda: place.prometheus.query(alert), "the alert that the example's page is for")
