"""The look before a night: what keeps it from going well is said, and what nobody knows is not called well."""

from __future__ import annotations

import functools
import http.server
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents import credential_call
from agents.kinds import kinds
from supervisor.client import submit
from supervisor.config.toml import Once
from supervisor.doctor.examine import CheckContext, Checked, State, ok, unknown, warn
from supervisor.features.night import check as night_check
from supervisor.features.night import commands as night_commands
from supervisor.features.night.check import Predicted
from supervisor.gateway.account.charges import Prices
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.account import Expected, Range, forecast, misfit
from supervisor.kernel.capacity import KNOWN
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Upstream
from supervisor.kernel.night import NightTerms
from supervisor.kernel.spec import TaskSpec
from supervisor.store import journal, sqlite
from tests.doctor.conftest import Machine
from tests.gateway.kit import know_prices, upstream
from tests.gateway.simulator import Simulator
from tests.support import House, git


@pytest.fixture
def sim(house: House) -> Iterator[Simulator]:
    """A provider behind the gateway of the house."""
    files.private_dir(house.home.root)
    know_prices(house.home)
    with Simulator() as running:
        house.config.write_text(f'grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n{upstream(house.home, running.url)}')
        yield running


def supply(machine: Machine, name: str, **texts: str) -> None:
    for key, text in texts.items():
        machine.file(f"sys/class/power_supply/{name}/{key}", f"{text}\n")


def test_a_laptop_on_battery_is_not_ready_and_a_kernel_that_says_nothing_is_unknown(machine: Machine) -> None:
    assert night_check.powered(machine.place()).state is State.UNKNOWN
    (machine.root / "sys/class/power_supply").mkdir(parents=True)
    assert night_check.powered(machine.place()).seen == "no battery and no lid"
    supply(machine, "BAT0", type="Battery", capacity="63", status="Discharging")
    supply(machine, "AC", type="Mains", online="0")
    found = night_check.powered(machine.place())
    assert found.state is State.FAIL and "63%" in found.seen
    supply(machine, "AC", type="Mains", online="1")
    assert night_check.powered(machine.place()).state is State.OK
    machine.file("proc/acpi/button/lid/LID0/state", "state:      closed\n")
    assert night_check.powered(machine.place()).state is State.WARN
    machine.file("proc/acpi/button/lid/LID0/state", "state:      open\n")
    assert "the lid is open" in night_check.powered(machine.place()).seen


def test_the_battery_of_a_mouse_is_none_of_the_machine(machine: Machine) -> None:
    supply(machine, "hid", type="Battery", scope="Device", capacity="5")
    assert night_check.powered(machine.place()).seen == "no battery and no lid"


def predicted(tasks: list[Expected], terms: NightTerms) -> Predicted:
    found = forecast(tasks, 1, "memory")
    late = misfit(found.ends, terms.until + terms.grace_s) if terms.until else misfit({}, 0)
    return Predicted(found, 1, "memory", late, misfit(found.costs, terms.cost_max) if terms.cost_max else late, {"claude": 2})


def test_what_will_not_fit_is_named_and_what_may_not_is_a_warning() -> None:
    hour = Range(3000.0, 3600.0, 5000.0)
    tasks = [Expected(name, (), hour, Range(1.0, 2.0, 3.0)) for name in "abc"]
    terms = NightTerms(until=7200.0, grace_s=60.0, cost_max=4.5)
    found = predicted(tasks, terms)
    late, dear = night_check.end(found, terms), night_check.cost(found, terms)
    assert late.state is State.FAIL and "1 of 3 do not fit: c" in late.seen and "memory binds" in late.seen
    assert dear.state is State.FAIL and "do not fit: c" in dear.seen
    roomy = NightTerms(until=14000.0, cost_max=8.0)
    found = predicted(tasks, roomy)
    assert (night_check.end(found, roomy).state, night_check.cost(found, roomy).state) == (State.WARN, State.WARN)
    ample = NightTerms(until=20000.0, cost_max=9.0)
    found = predicted(tasks, ample)
    assert (night_check.end(found, ample).state, night_check.cost(found, ample).state) == (State.OK, State.OK)


def test_what_nobody_knows_is_unknown_with_and_without_a_bound() -> None:
    for terms in (NightTerms(), NightTerms(until=1e9, cost_max=1e9)):
        found = predicted([Expected("a")], terms)
        assert {night_check.end(found, terms).state, night_check.cost(found, terms).state} == {State.UNKNOWN}
        assert "claude (2)" in night_check.end(found, terms).why
    bounded = predicted([Expected("a", (), Range(high=60.0), Range(high=2.0))], NightTerms(until=7200.0, cost_max=3.0))
    assert night_check.end(bounded, NightTerms(until=7200.0)).state is State.OK  # its timeout alone says that it fits


def checks(house: House, plan: str, *words: str, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The exit code, all that `--json` says, and the checks by group and name."""
    done = house.run("night", "check", plan, *words, "--json", env=env)
    assert done.returncode in (0, 1), done.stderr
    shape = json.loads(done.stdout)
    return done.returncode, shape, {f"{one['group']}/{one['name']}": one for one in shape["checks"]}


def test_a_night_has_one_number_of_slots_and_says_what_limits_it(house: House) -> None:
    house.config.write_text('grace = "1s"\nsandbox = 0\nslots = 1000\n')
    plan = house.plan('[[tasks]]\nid = "one"\ncommand = "true"\n[[tasks]]\nid = "two"\ncommand = "true"\nafter = ["one"]\n')
    for words, limit in (((), "memory"), (("--parallel", "1"), "--parallel")):
        _, shape, found = checks(house, plan, *words)
        slots = shape["prediction"]["slots"]
        assert f"on {slots} slots; {limit} binds" in found["prediction/end"]["seen"]


def test_a_chain_that_binds_does_not_hide_what_limits_the_slots() -> None:
    found = predicted([Expected("a", (), Range(1.0, 2.0, 3.0))], NightTerms())
    chained = replace(found, forecast=replace(found.forecast, binding="chain"))
    assert "on 1 slots, as many as memory allows; the longest chain" in night_check.end(chained, NightTerms()).seen


def test_gates_and_credentials_are_tried_out_where_agents_work(house: House, sim: Simulator) -> None:
    house.start_daemon()
    (house.repo / "README").write_text("changed, and in no commit\n")
    before = git(house.repo, "status", "--porcelain"), git(house.repo, "branch", "--list"), (house.repo / "README").stat().st_mtime_ns
    plan = house.plan(
        """
[[tasks]]
id = "one"
kind = "builtin"
prompt = "x"
gate = "grep -q hello README && touch made"
[[tasks]]
id = "two"
kind = "builtin"
prompt = "x"
gate = "grep -q hello README && touch made"
[[tasks]]
id = "red"
command = "true"
gate = "echo it is red; exit 3"
[[tasks]]
id = "lacking"
command = "true"
gate = "no-such-program"
"""
    )
    code, shape, found = checks(house, plan)
    assert code == 1 and shape["ready"] is False and shape["verdict"].startswith("not ready: 1 of ")
    assert found["repository/gate-1"]["state"] == "ok"  # the base has hello, the checkout has not
    red = found["repository/gate-2"]
    assert red["state"] == "warn" and "it is red" in red["seen"] and "the night is to make it pass" in red["seen"]
    assert found["repository/gate-3"]["state"] == "fail" and "could not judge anything" in found["repository/gate-3"]["seen"]
    assert "repository/gate-4" not in found
    assert found["credentials/anthropic"]["state"] == "ok" and "cost nothing" in found["credentials/anthropic"]["seen"]
    assert found["repository/base"]["state"] == "warn" and "README" in found["repository/base"]["seen"]
    assert found["prediction/end"]["state"] == "unknown" and shape["prediction"]["end_s"]["likely"] is None
    assert before == (
        git(house.repo, "status", "--porcelain"),
        git(house.repo, "branch", "--list"),
        (house.repo / "README").stat().st_mtime_ns,
    )
    assert {view.name for view in house.tasks()} == {"gate-1", "gate-2", "gate-3", "call-anthropic"}  # nothing of the plan
    with closing(sqlite.connect_readonly(house.home.ledger)) as db:
        assert journal.of_kind(db, "shell") == []  # what was tried out teaches nothing
    left = git(house.repo, "for-each-ref", "--format=%(refname)", "refs/nightcrew").split()
    assert [ref.split("/")[-2] for ref in left] == ["gate-1"]  # it made a file; what holds nothing beside the base is gone


def test_everything_is_looked_at_whatever_is_missing(house: House, sim: Simulator, tmp_path: Path) -> None:
    codex = tmp_path / "bin" / "codex"
    codex.parent.mkdir()
    codex.write_text('#!/bin/sh\n[ "$1" = --version ] && echo codex-cli 0.169.0\n')
    codex.chmod(0o755)
    plan = house.plan(
        """
base = "nosuch"
[[tasks]]
id = "other-api"
kind = "codex"
prompt = "x"
[[tasks]]
id = "no-program"
kind = "gemini"
prompt = "x"
[[tasks]]
id = "no-price"
kind = "builtin"
model = "no-such-model"
prompt = "x"
gate = "true"
[[tasks]]
id = "attended"
kind = "terminal"
command = "cat"
"""
    )
    tools = {"PATH": f"{codex.parent}:/usr/bin:/bin"}
    house.start_daemon(env=tools)
    code, _, found = checks(house, plan, "--cost-max", "40", env=tools)
    assert code == 1
    assert found["agents/codex"]["state"] == "fail" and "nobody is logged in" in found["agents/codex"]["seen"]
    assert found["agents/gemini"]["state"] == "fail" and "not on the PATH" in found["agents/gemini"]["seen"]
    assert found["agents/terminal"]["state"] == "fail" and "attended" in found["agents/terminal"]["seen"]
    assert found["agents/builtin"]["state"] == "ok"
    assert found["models/no-such-model"]["state"] == "fail" and "nobody knows its price" in found["models/no-such-model"]["seen"]
    assert found["repository/base"]["state"] == "fail" and "nosuch names no commit" in found["repository/base"]["seen"]
    assert found["repository/gate-1"]["state"] == "unknown" and "names no commit" in found["repository/gate-1"]["seen"]
    assert found["credentials/anthropic"]["state"] == "ok"  # the call needs no base of the plan's
    assert [entry["model"] for entry in sim.last() if entry["api"] == "count_tokens"] == ["no-such-model"]


FULL = 'grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = "1000000TiB"\n'


def test_on_a_full_disk_nothing_is_tried_and_a_kind_without_a_key_cannot_work(house: House) -> None:
    house.config.write_text(FULL)
    (house.repo / ".git/info/exclude").write_text("*.log\n")
    (house.repo / "new").write_text("in no commit\n")
    (house.repo / "ignored.log").write_text("for nobody\n")
    plan = house.plan('[[tasks]]\nid = "one"\nkind = "builtin"\nprompt = "x"\ngate = "true"\n')
    code, _, found = checks(house, plan)
    assert code == 1 and found["machine/disk"]["state"] == "fail"
    assert found["repository/gate-1"]["state"] == "unknown" and "disk" in found["repository/gate-1"]["seen"]
    assert found["agents/builtin"]["state"] == "fail" and "no gateway" in found["agents/builtin"]["seen"]
    assert found["repository/base"]["state"] == "warn" and "1 untracked file is in no commit" in found["repository/base"]["seen"]
    assert house.tasks() == []


def test_what_cannot_start_is_unknown_with_its_reason_and_is_ended(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.config.write_text(FULL)
    house.start_daemon()
    for name in ("NIGHTCREW_HOME", "NIGHTCREW_CONFIG"):
        monkeypatch.setenv(name, house.env[name])
    plan = house.plan('[[tasks]]\nid = "one"\ncommand = "true"\ngate = "true"\n')
    like = submit.to_look_at(Path(plan), submit.workplace(house.repo), None, house.env, Once())
    (tried,) = night_check.run(
        house.home, like, night_check.gates(like.spec.tasks), functools.partial(night_commands.reasons, house.home), blocked_s=0.0
    )
    assert tried.state is None and "disk" in tried.waited
    assert [view.final for view in house.tasks()] == [True]


def test_the_last_line_says_that_something_is_not_known() -> None:
    found = [Checked("prediction", "end", unknown("not known")), Checked("machine", "disk", ok("full of room"))]
    assert night_commands.verdict(found) == "ready as far as is known: 1 unknown"
    assert night_commands.verdict([*found, Checked("repository", "base", warn("dirty", "", ""))]) == (
        "ready as far as is known: 1 to look at, 1 unknown"
    )
    assert night_commands.verdict(found[1:]) == "ready"


def test_models_that_nobody_serves_are_not_ready_and_those_a_client_names_itself_are_left_to_it() -> None:
    narrow = Upstream("mine", Api.ANTHROPIC, "http://127.0.0.1:1", models=("claude-*",))
    settings = GatewaySettings((narrow,), prices={"claude-x-1": {"input": 1.0, "output": 1.0}})
    prices = Prices(Path("/nonexistent"), settings.prices)

    def seen(model: str, kind: str = "builtin", **said: Any) -> dict[str, State]:
        task = TaskSpec("one", "one", kind, (), prompt="x", model=model, **said)
        found = night_check.checks(settings, [task], NightTerms(cost_max=1.0), prices)
        return {name: check(CheckContext(Home(Path("/")), Path(), Path(), {})).state for name, check in found.items()}

    assert seen("gpt-9") == {"gpt-9": State.FAIL}
    assert seen("claude-x-1") == {"claude-x-1": State.OK}
    assert seen("sonnet", "claude") == {} and seen("gpt-9", "codex") == {}
    assert not night_check.keyed(settings, kinds()["codex"]) and night_check.keyed(settings, kinds()["claude"])


class Provider(http.server.BaseHTTPRequestHandler):
    """Knows one model, in Anthropic's words and in OpenAI's."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._say(404, {"error": {"type": "not_found_error", "message": "model: no-such-model"}})

    def do_GET(self) -> None:
        self._say(200, {"data": [{"id": "gpt-9"}]})

    def _say(self, status: int, shape: object) -> None:
        body = json.dumps(shape).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


def test_the_call_says_when_the_provider_does_not_know_the_model_of_the_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for api in ("ANTHROPIC", "OPENAI"):
            monkeypatch.setenv(f"{api}_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "t")
        monkeypatch.setenv("OPENAI_API_KEY", "t")

        def asked(*words: str) -> tuple[int, object]:
            monkeypatch.setattr(sys, "argv", ["call", *words])
            code = credential_call.main()
            return code, json.loads(capsys.readouterr().out)["listed"]

        assert asked("anthropic", "no-such-model") == (0, None)  # a common one that this provider has not: the credential was taken
        assert asked("anthropic", "no-such-model", "--known") == (1, None)
        assert asked("openai", "gpt-9", "--known") == (0, True)
        assert asked("openai", "gpt-1", "--known") == (0, False)
        server.shutdown()


def test_a_refused_credential_and_an_interactive_task_are_not_ready(house: House, sim: Simulator) -> None:
    sim.faults(status=401)
    house.start_daemon()
    plan = house.plan('[[tasks]]\nid = "one"\nkind = "builtin"\nprompt = "x"\n')
    code, _, found = checks(house, plan)
    assert code == 1 and found["credentials/anthropic"]["state"] == "fail" and "key refused" in found["credentials/anthropic"]["seen"]
    plan = house.plan('[[tasks]]\nid = "one"\nkind = "builtin"\nprompt = "x"\ninteractive = true\n')
    code, _, found = checks(house, plan)
    assert code == 1 and found["agents/builtin"]["state"] == "fail"


def test_a_plan_that_ran_before_is_predicted_from_that(house: House) -> None:
    before = [f'[[tasks]]\nid = "{number}"\ncommand = "sleep 0.0{number}"\n' for number in range(KNOWN)]
    house.start_daemon()
    house.ok("run", "--detach", house.plan("".join(before)))
    house.wait_final()
    plan = house.plan('[[tasks]]\nid = "one"\ncommand = "true"\n')
    code, shape, found = checks(house, plan, "--until", "1h", "--cost-max", "1")
    assert code == 0 and shape["ready"] is True
    assert (found["prediction/end"]["state"], found["prediction/cost"]["state"]) == ("ok", "ok")
    taken = sorted(view.ended - view.started for view in house.tasks() if view.ended and view.started)
    said = shape["prediction"]["end_s"]
    assert said["low"] == pytest.approx(taken[0]) and said["high"] == pytest.approx(taken[-1])
    assert said["likely"] == pytest.approx(sum(taken) / len(taken))
    assert shape["prediction"]["cost_usd"] == {"low": 0.0, "likely": 0.0, "high": 0.0}


def test_a_night_that_is_not_ready_is_not_installed(house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.server.installed_kit import own_crontab

    table = own_crontab(house, monkeypatch)
    plan = house.plan('[[tasks]]\nid = "one"\ncommand = "true"\ngate = "no-such-program"\n')
    done = house.run("night", "install", plan, "--at", "22:30", "--yes")
    assert done.returncode == 6 and "fails today" in done.stderr and "--no-check" in done.stderr
    assert not table.exists() and not (house.home.root / "nights").exists()
