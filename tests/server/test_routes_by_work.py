"""A task whose gate fails is tried again by a stronger model, and the report says so. A whole supervisor, a simulated provider."""

from __future__ import annotations

import contextlib
import json

from supervisor.gateway.account import schema
from supervisor.kernel.spec import RAISED
from tests.server.models_kit import Models

ROUTES = """
[[route]]
model = "*"
work = "trivial"
upstream = "sim"
as = "claude-haiku-4-5"

[[route]]
model = "*"
work = "simple"
upstream = "sim"
as = "claude-sonnet-4-5"
"""


def test_the_attempt_after_a_failed_gate_asks_one_stronger_and_the_report_shows_it(models: Models) -> None:
    models.settings(ROUTES)
    house = models.house
    house.start_daemon()
    models.ready()
    gate = f"test -e {house.home.root}/second || {{ touch {house.home.root}/second; exit 1; }}"
    plan = "".join(
        f"[[tasks]]\nid = {json.dumps(name)}\ncommand = {json.dumps(f'{models.ask} 10')}\n{more}"
        for name, more in (("repaired", f"gate = {json.dumps(gate)}\n"), ("well", ""))
    )
    house.ok("run", "--detach", house.plan(plan))
    house.wait_final()
    assert (house.state("repaired"), house.state("well")) == ("done", "done")
    with contextlib.closing(schema.connect_readonly(house.home.gateway_account)) as db:
        found = [tuple(row) for row in db.execute("SELECT epoch, work, model FROM request WHERE agent LIKE '%/repaired' ORDER BY id")]
        reasons = [row["work_why"] for row in db.execute("SELECT work_why FROM request WHERE work = 'simple'")]
    assert found == [(1, "trivial", "claude-haiku-4-5"), (2, "simple", "claude-sonnet-4-5")]
    assert len(reasons) == 1 and reasons[0].endswith(RAISED)
    report = json.loads(house.ok("report", "--json"))
    assert [(row["work"], row["requests"], row["done"], row["gate_failed"], row["raised"]) for row in report["routes"]] == [
        ("trivial", 2, 1, 1, 0),
        ("simple", 1, 1, 0, 1),
    ]
