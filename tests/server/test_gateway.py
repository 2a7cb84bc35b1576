"""The gateway as the daemon keeps it, and what agents get from it. Real processes, and the simulated provider behind them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from supervisor.gateway import pages
from supervisor.host import files, processes
from supervisor.kernel.pressure import ADMIT, of_start
from supervisor.kernel.states import TaskClass
from supervisor.server import gateway_process, gateway_report, prices
from supervisor.server.gateway import LOOK_S, _fresh_for_s
from tests.gateway.kit import KEY, upstream
from tests.server.models_kit import Models
from tests.support import House, plan_of, shell_task, wait_until

POISON = {"HTTPS_PROXY": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "sk-ant-of-the-shell", "LD_PRELOAD": "", "PYTHONPATH": "/nowhere"}


def result(house: House, name: str) -> dict[str, Any]:
    return house.task(name).result or {}


# Agents ---------------------------------------------------------------------------------------------------------------------------


def test_what_agents_get_of_it_and_it_gets_of_nobody(models: Models) -> None:
    """All of one crew: a task at a model, keys, variables after a change of the settings, a refused key, and at last a damaged account."""
    models.settings(before='pass_env = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY"]\n')
    models.house.start_daemon(env=POISON)
    models.ready()
    for part in (
        _has_nothing_of_ours_that_it_should_not_have,
        _a_task_reaches_a_model_and_its_result_says_what_that_took,
        _no_key_of_a_provider_reaches_an_agent_and_no_task_can_go_past_the_gateway,
        _a_refused_key_is_told_once_and_is_forgotten_when_the_right_one_is_there,
        _agents_that_start_after_a_change_get_the_variables_of_a_new_upstream,
        _an_account_that_cannot_be_read_leaves_null_and_a_note,
    ):
        part(models)


def _a_task_reaches_a_model_and_its_result_says_what_that_took(models: Models) -> None:
    models.house.ok("add", "--id", "asks", "-f", f"{models.ask} 100")
    shape = result(models.house, "asks")
    usage = shape["output"]["usage"]
    assert shape["tokens"] == {
        "input": usage["input_tokens"],
        "output": usage["output_tokens"],
        "cache_read": 0,
        "cache_write": 0,
        "estimated": 0,
    }
    assert usage["input_tokens"] > 100 and shape["waits"]["tokens_s"] >= 0 and shape["notes"] == []
    models.house.ok("add", "--id", "silent", "-f", "true")
    quiet = result(models.house, "silent")
    assert quiet["tokens"] == dict.fromkeys(("input", "output", "cache_read", "cache_write", "estimated"), 0)
    assert (quiet["cost_usd"], quiet["waits"]["tokens_s"]) == (0, 0)


def _no_key_of_a_provider_reaches_an_agent_and_no_task_can_go_past_the_gateway(models: Models) -> None:
    secrets = {"ANTHROPIC_API_KEY": "sk-ant-of-the-shell", "ANTHROPIC_BASE_URL": "https://elsewhere.invalid", "OPENAI_API_KEY": "sk-other"}
    params = {
        "ANTHROPIC_API_KEY": "sk-ant-of-the-plan",
        "ANTHROPIC_AUTH_TOKEN": "of the plan",
        "ANTHROPIC_BASE_URL": "https://elsewhere.invalid",
        "HARMLESS": "of the plan",
    }
    plan = models.house.plan(plan_of([shell_task("shows", "env -0 | tr '\\0' '\\n'", params=params)]))
    models.house.ok("run", plan, env=secrets)
    said = models.house.ok("logs", "shows")
    seen = dict(line.partition("=")[::2] for line in said.splitlines())
    assert seen["ANTHROPIC_BASE_URL"] == f"http://127.0.0.1:{models.record().port}"
    assert seen["ANTHROPIC_AUTH_TOKEN"] == seen["NIGHTCREW_TOKEN"] and seen["NIGHTCREW_TOKEN"].startswith("nct_")
    assert seen["HARMLESS"] == "of the plan" and seen["OPENAI_API_KEY"] == "sk-other", "no upstream of ours has a key for that"
    assert "ANTHROPIC_API_KEY" not in seen
    assert "sk-ant" not in said and KEY not in said


def _has_nothing_of_ours_that_it_should_not_have(models: Models) -> None:
    pid = models.record().identity.pid
    assert os.getsid(pid) == pid, "a session of its own: no terminal's end reaches it"
    with contextlib.suppress(PermissionError):  # only root may look: it made itself undumpable
        environ = Path(f"/proc/{pid}/environ").read_text()
        assert {name for name in POISON if f"{name}=" in environ} == set()
        held = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        assert [path for path in held if path.endswith(("ledger.db", "daemon.lock", "daemon.out"))] == []
    assert (
        sys.executable.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and b"sk-ant" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def _a_refused_key_is_told_once_and_is_forgotten_when_the_right_one_is_there(models: Models) -> None:
    models.sim.faults(status=401, times=2)  # once may be a slip of the provider's
    models.house.ok("add", "--id", "refused", f"{models.ask} 1")
    file = models.house.home.keys / "sim.key"
    said = f"sim refuses its key: put the key into {file} (mode 600), then nightcrew gateway reload"
    wait_until(lambda: gateway_report.hear(models.house.home).troubles == (said,), "the word of it")
    models.house.ok("gateway", "reload")
    models.house.ok("wait", "refused")
    wait_until(lambda: gateway_report.hear(models.house.home).troubles == (), "it to be over")
    assert models.house.state("refused") == "done"
    assert models.house.daemon_output().count(said) == 1


def _agents_that_start_after_a_change_get_the_variables_of_a_new_upstream(models: Models) -> None:
    models.house.ok("add", "--id", "before", "-f", "env")
    models.settings(upstream(models.house.home, models.sim.url, name="second", api="openai"))
    models.house.ok("gateway", "reload")
    models.house.ok("add", "--id", "after", "-f", "env")
    url = f"OPENAI_BASE_URL=http://127.0.0.1:{models.record().port}/v1"
    assert [url in models.house.ok("logs", name).splitlines() for name in ("before", "after")] == [False, True]
    models.house.config.write_text("slots = [")
    whole = {"NIGHTCREW_CONFIG": str(models.script.with_name("none.toml"))}  # the command would complain of the broken one
    models.house.ok("add", "--id", "broken", "-f", "env", env=whole)
    assert url in models.house.ok("logs", "broken").splitlines()
    wait_until(lambda: "the settings cannot be read; new agents get those of before" in models.house.daemon_output(), "the alert")


def _an_account_that_cannot_be_read_leaves_null_and_a_note(models: Models) -> None:
    models.settings()
    assert result(models.house, "asks")["tokens"]["output"] == 50
    os.kill(models.record().identity.pid, signal.SIGSTOP)  # it must not mend what is broken here
    try:
        models.house.home.gateway_account.write_bytes(b"no account at all" * 1000)
        models.house.ok("add", "--id", "late", "-f", "true")
    finally:
        os.kill(models.record().identity.pid, signal.SIGCONT)
    shape = result(models.house, "late")
    assert shape["end"] == "done" and set(shape["tokens"].values()) == {None} and shape["cost_usd"] is None
    assert [note.partition(":")[0] for note in shape["notes"]] == ["its tokens are not known"]


def test_the_price_table_is_written_once_a_day(models: Models, tmp_path: Path) -> None:
    """By a process of its own that takes a second, so a table that is good is left as it is."""
    table = models.house.home.prices
    table.unlink()
    assert _fresh_for_s(table, 1e9) == 0.0
    models.start()
    wait_until(lambda: table.exists() and table.stat().st_size > 1000, "the table")
    written = table.stat().st_mtime
    assert _fresh_for_s(table, written + 1.0) == prices.REFRESH_S - 1.0
    assert _fresh_for_s(table, written + prices.REFRESH_S) == 0.0
    assert _fresh_for_s(table, written - 5.0) == 0.0, "the clock was set back: nobody knows how old it is"
    names = (f"asks{number}" for number in itertools.count())

    def has_cost() -> bool:
        models.house.ok("add", "--id", (name := next(names)), "-f", f"{models.ask} 1")
        return 0 < (result(models.house, name)["cost_usd"] or 0) < 1

    wait_until(has_cost, "the gateway to know it too")
    assert table.stat().st_mtime == written


def test_without_an_upstream_there_is_no_gateway_and_an_agent_keeps_its_own_key(house: House) -> None:
    house.config.write_text('pass_env = ["ANTHROPIC_API_KEY"]\n' + house.config.read_text())
    house.start_daemon()
    house.ok("add", "--id", "shows", "-f", "env", env={"ANTHROPIC_API_KEY": "sk-own"})
    said = house.ok("logs", "shows")
    assert "ANTHROPIC_API_KEY=sk-own" in said.splitlines() and "ANTHROPIC_BASE_URL" not in said and "NIGHTCREW_TOKEN=nct_" in said
    assert house.gateway() is None and not house.home.gateway_record.exists()
    shape = result(house, "shows")
    assert set(shape["tokens"].values()) == {None} and shape["cost_usd"] is None and shape["notes"] == []


def test_a_gateway_is_added_to_a_running_supervisor_by_a_key_and_by_a_table(models: Models) -> None:
    """Neither needs a restart: agents that start from then on go through it, those before keep what they had."""
    house = models.house
    files.private_dir(house.home.root)
    bare = 'grace = "1s"\nsandbox = 0\n[limits]\ndisk_free_min = 0\n'
    house.config.write_text(bare)
    daemon = house.start_daemon()
    gate = house.repo.parent / "gate"
    house.ok("add", "--id", "before", f"until [ -e {gate} ]; do sleep .02; done; env")
    wait_until(lambda: house.state("before") == "running", "an agent without a gateway")
    said = house.run("up", "-d", env={"ANTHROPIC_API_KEY": KEY}).stderr
    assert f"the gateway listens on 127.0.0.1:{models.record().port}\n" in said, said
    first = models.record()
    house.config.write_text(bare + upstream(house.home, models.sim.url))
    said = house.run("up", "-d").stderr
    assert "the gateway listens on" in said and "restart" not in said
    wait_until(lambda: "settings read again: sim" in house.home.gateway_log.read_text(), "the gateway to read the table")
    said = house.run("up", "-d", env={"OPENAI_API_KEY": KEY}).stderr
    assert "openai.key: " in said and "add [upstream.openai]" in said, said
    (house.home.keys / "openai.key").unlink()
    house.ok("add", "--id", "asks", "-f", f"{models.ask} 100")
    assert result(house, "asks")["tokens"]["output"] == 50
    gate.touch()
    house.ok("wait", "before")
    assert "ANTHROPIC_BASE_URL" not in house.ok("logs", "before")
    assert result(house, "before")["cost_usd"] is None, "nobody knows what it spent"
    assert (models.record(), daemon.poll()) == (first, None)
    house.config.write_text(bare)
    (house.home.keys / "anthropic.key").unlink()
    wait_until(lambda: house.gateway() is None, "the gateway to end with its last upstream")
    assert models.ping()["gateway"] is None
    house.ok("add", "--id", "after", "-f", "env")
    assert "ANTHROPIC_BASE_URL" not in house.ok("logs", "after")


# Its life -------------------------------------------------------------------------------------------------------------------------


def test_one_that_was_killed_or_hangs_is_there_again_on_its_port_and_attempts_go_on(models: Models) -> None:
    models.start()
    before = models.record()
    models.sim.faults(hold="answer", times=1)
    models.house.ok("add", "--id", "asks", f"{models.ask} 10")
    models.sim.wait_held("answer")
    os.kill(before.identity.pid, signal.SIGKILL)
    after = models.another(before)
    assert after.port == before.port
    models.house.ok("wait", "asks")
    view = models.house.task("asks")
    assert (view.state, view.epoch) == ("done", 1), models.house.daemon_output()
    shape = result(models.house, "asks")
    assert shape["tokens"]["estimated"] == 1, "the request that was cut is charged, and nobody knows what it took"
    assert shape["tokens"]["output"] >= 50 + 50
    assert models.house.daemon_output().count("the gateway died; it is started again") == 1
    _one_that_hangs_is_killed_and_started_again(models)


def _one_that_hangs_is_killed_and_started_again(models: Models) -> None:
    before = models.record()
    os.kill(before.identity.pid, signal.SIGSTOP)
    after = models.another(before)
    assert after.port == before.port and not processes.alive(before.identity)
    assert "the gateway did not answer any more and was killed" in models.house.daemon_output()
    models.house.ok("add", "--id", "late", "-f", f"{models.ask} 1")
    assert models.house.state("late") == "done"


def test_it_outlives_a_killed_daemon_and_the_next_one_takes_it_over(models: Models) -> None:
    """With that one's own settings; and by one of its own version once nothing is under way."""
    daemon = models.start()
    before = models.record()
    models.sim.faults(hold="answer", times=1)
    models.house.ok("add", "--id", "asks", f"{models.ask} 10")
    models.sim.wait_held("answer")
    daemon.kill()
    daemon.wait()
    models.settings(upstream(models.house.home, models.sim.url, name="second"))
    daemon = models.start()
    assert models.record() == before
    wait_until(lambda: "settings read again: sim, second" in models.house.home.gateway_log.read_text(), "it to read the new settings")
    daemon.kill()
    daemon.wait()
    shape = json.loads(models.house.home.gateway_record.read_text())
    models.house.home.gateway_record.write_text(json.dumps({**shape, "version": "0.0.1"}))
    models.start()
    looks_end = time.monotonic() + 2 * LOOK_S
    while time.monotonic() < looks_end:
        answer = pages.ask(models.house.home, pages.PING)
        assert (answer["pid"], answer["stopping"]) == (before.identity.pid, False), "a stream is under way"
        time.sleep(0.1)
    models.sim.release("answer")
    models.house.ok("wait", "asks")
    after = models.another(before)
    assert after.port == before.port and after.version != "0.0.1"
    assert models.sim.tally().asked == 1 and models.house.task("asks").epoch == 1, "no request was sent twice"
    assert "the gateway died" not in models.house.daemon_output()


def test_nothing_starts_before_it_is_ready_and_a_person_is_told_why(models: Models) -> None:
    """And once of what it complains of when it is, here a key that is not there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        models.settings(f"[gateway]\nport = {port}\n")
        key = models.house.home.keys / "sim.key"
        key.rename(key.with_name("away"))
        models.house.start_daemon()
        models.house.ok("add", "--id", "asks", "true")
        said = "the gateway does not stay up, and nothing new starts until it does: cannot listen 127.0.0.1"
        wait_until(lambda: said in models.house.daemon_output(), "the reason")
        view = models.house.task("asks")
        assert (view.state, view.epoch) == ("ready", 0)
        assert models.ping()["no_gateway"] == "the gateway does not stay up"
        assert models.house.daemon_output().count(said) == 1
    models.house.ok("wait", "asks", "--timeout", "90s")
    assert (models.house.state("asks"), models.record().port) == ("done", port)
    assert "the gateway runs again" in models.house.daemon_output()
    wait_until(lambda: "nightcrew: the gateway: " in models.house.daemon_output(), "its complaint")
    models.ready()
    models.house.ok("add", "--id", "works", "-f", "true")
    (complaint,) = [line for line in models.house.daemon_output().splitlines() if "the gateway: " in line]
    assert "sim.key" in complaint


def test_down_ends_it_with_the_last_agent_and_not_before(models: Models) -> None:
    """Its socket, which is the way of agents that have no network, is bound again meanwhile when somebody removed it."""
    models.start()
    before = models.record()
    models.house.home.gateway_socket.unlink()
    wait_until(lambda: models.house.home.gateway_socket.exists(), "the socket to be there again", 20)
    assert pages.ask(models.house.home, pages.STATUS) and models.record() == before
    models.house.ok("add", "--id", "lives", "sleep 600")
    wait_until(lambda: models.house.task("lives").attempt_state == "running", "it to run")
    models.house.ok("down")
    assert models.record() == before
    models.start()
    assert models.record() == before
    models.house.ok("kill", "lives")
    models.house.ok("down")
    assert models.house.gateway() is None and not processes.alive(before.identity)
    assert not models.house.home.run_dir.exists()
    assert [path.name for path in models.house.home.root.iterdir() if path.name.endswith(("-wal", "-shm"))] == [], "no log is left"
    models.start()
    assert models.record().port == before.port, "agents of another day find it where it was"


def test_down_ends_what_a_killed_supervisor_left_and_says_so(models: Models) -> None:
    """The gateway and the tmux server, unless an agent lives, which needs both."""
    house, daemon = models.house, models.start()
    before, server = models.record(), models.house.tmux_pid()
    house.ok("add", "--id", "lives", "sleep 600")
    wait_until(lambda: house.task("lives").attempt_state == "running", "it to run")
    daemon.kill()
    daemon.wait()
    done = house.run("down")
    assert done.returncode == 5 and "agents go on" in done.stderr, done.stderr
    assert (models.record(), house.tmux_pid()) == (before, server)
    daemon = models.start()
    house.ok("kill", "lives")
    wait_until(lambda: not house.sessions(), "its session to go")
    daemon.kill()
    daemon.wait()
    said = house.run("down")
    assert said.returncode == 0, said.stderr
    assert f"the gateway (pid {before.identity.pid})" in said.stderr and f"the tmux server (pid {server})" in said.stderr
    assert not processes.alive(before.identity) and house.tmux_pid() is None
    assert not house.home.run_dir.exists()
    assert [path.name for path in house.home.root.iterdir() if path.name.endswith(("-wal", "-shm"))] == [], "no log is left"
    done = house.run("down")
    assert done.returncode == 5 and "no supervisor is running" in done.stderr
    models.start()
    assert models.record().port == before.port


def test_down_ends_one_that_is_not_ready_yet(models: Models, tmp_path: Path) -> None:
    """It has written no record then, and would be there for ever."""
    asked = tmp_path / "asked"
    program = ["sh", "-c", f"touch {asked}; exec sleep 20"]
    models.settings(of_upstream=f"key_command = {json.dumps(program)}")
    models.house.start_daemon()
    wait_until(asked.exists, "it to read its keys")
    assert models.house.gateway() is None and len(gateway_process.all_of(models.house.home)) == 1
    models.house.ok("down")
    assert gateway_process.all_of(models.house.home) == []


# What it says and what new agents are told ----------------------------------------------------------------------------------------


# Its load -------------------------------------------------------------------------------------------------------------------------


def test_batch_tasks_wait_while_requests_queue_and_start_when_they_do_not(models: Models) -> None:
    """600 tokens a minute, and requests of more than that one after the other: the second one waits for about a minute."""
    models.settings(of_upstream="itpm = 600\nlearn = false")
    daemon = models.start()
    many = " & ".join([f"{models.ask} 300"] * 4)
    models.house.ok("add", "--id", "heavy", f"{many} & wait")
    wait_until(lambda: "batch" in models.ping()["conditions"]["held"], "the delay to reach the crew")
    heard = gateway_report.hear(models.house.home).conditions
    assert heard is not None and of_start(TaskClass.INTERACTIVE, heard) == ADMIT
    assert re.fullmatch(r"waits for the model limit \(a request waits [0-9hms]+\)", of_start(TaskClass.BATCH, heard).words)
    for name in ("batch", "interactive"):
        models.house.ok("add", "--id", name, "--class", name, "true")
    models.house.ok("wait", "interactive")
    wait_until(lambda: "batch" in models.house.daemon_output(), "a word about it")
    assert re.search(r"(?:batch|batch and normal) tasks wait until the models are less busy", models.house.daemon_output())
    assert (models.house.state("batch"), models.house.task("batch").epoch) == ("ready", 0)
    models.house.ok("down")
    daemon.wait(30)
    models.start()
    wait_until(lambda: "batch" in models.ping()["conditions"]["held"], "the next supervisor to hear of it")
    assert models.house.task("batch").epoch == 0, "it started nothing before it had heard"
    models.house.ok("kill", "heavy")
    models.house.ok("wait", "batch", "--timeout", "60s")
    assert models.house.state("batch") == "done"
