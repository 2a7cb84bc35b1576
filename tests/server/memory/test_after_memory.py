"""Tasks with `after = { memory = ... }`, from the plan to their start."""

from __future__ import annotations

from tests.support import House, wait_until

PLAN = """
[[tasks]]
id = "build"
command = "true"
after = { memory = "semantic/plan.md" }
"""


def test_it_starts_when_a_person_writes_the_note(house: House) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(PLAN))
    wait_until(lambda: "the note semantic/plan.md" in house.ok("status"), "the status to name the note")
    (memory,) = (house.home.root / "projects").glob("*/memory")
    (memory / "semantic").mkdir()
    (memory / "semantic" / "plan.md").write_text("begin\n")
    wait_until(lambda: house.task("build").state == "done", "the task to be done")
