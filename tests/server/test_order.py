"""Who starts, and who does not, by the keys of a plan and the settings; with a real supervisor."""

from __future__ import annotations

import json
import time

from tests.support import House, wait_until


def test_one_of_several_starts_it_and_what_is_late_expires(house: House) -> None:
    house.config.write_text("slots = 1\n" + house.config.read_text())
    house.start_daemon()
    gate = house.home.root.parent / "gate"
    plan = f"""
[[tasks]]
id = "first"
command = "until [ -e {gate} ]; do sleep 0.02; done"
priority = 100
[[tasks]]
id = "bad"
command = "false"
[[tasks]]
id = "late"
command = "true"
not_after = 0.01
[[tasks]]
id = "never"
command = "true"
after = ["late"]
[[tasks]]
id = "either"
command = "true"
after = {{ any = ["bad", "good"] }}
[[tasks]]
id = "good"
command = "true"
deadline = "30m"
"""
    house.ok("run", "--detach", house.plan(plan))
    wait_until(lambda: house.state("never") == "skipped", "the late one to expire")
    assert (house.state("late"), house.task("late").reason) == ("expired", "did not start in time (not_after)")
    gate.touch()
    house.wait_final()
    states = {view.name: str(view.state) for view in house.tasks()}
    assert states == {"first": "done", "bad": "failed", "late": "expired", "never": "skipped", "either": "done", "good": "done"}
    good, bad = house.task("good").started, house.task("bad").started
    assert good is not None and bad is not None and good < bad, "its deadline is near"
    house.ok("retry", "late")
    house.wait_final()
    assert house.state("late") == "done", "who asks for it again wants it to run"


def test_batch_tasks_wait_for_their_window_and_status_says_so(house: House) -> None:
    hour = time.localtime().tm_hour
    window = f"{(hour + 10) % 24:02}:00-{(hour + 12) % 24:02}:00"
    house.config.write_text(house.config.read_text() + f'[batch]\nwindow = "{window}"\n')
    daemon = house.start_daemon()
    house.ok("add", "--class", "batch", "--id", "night", "true")
    house.ok("add", "--id", "day", "--follow", "true")
    assert house.state("night") == "ready"
    assert f"waits for {window}" in house.ok("status")
    (waits,) = [task["waits_for"] for task in json.loads(house.ok("status", "--json"))["tasks"] if task["name"] == "night"]
    assert (waits["decision"], waits["code"], waits["words"]) == ("defer", "window", f"waits for {window}")
    house.config.write_text(house.config.read_text().replace(window, f"{hour:02}:00-{(hour + 2) % 24:02}:00"))
    house.ok("down")
    daemon.wait(30)
    house.start_daemon()
    wait_until(lambda: house.state("night") == "done", "the window to be open")
