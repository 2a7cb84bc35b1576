"""What an agent is told of the memory before its task, as the supervisor starts it."""

from __future__ import annotations

import contextlib

from memory.versions import BOOK
from supervisor.store import sqlite
from tests.support import House

KIND = 'description = "prints what it is told"\nbinary = "/bin/sh"\nheadless = ["-c", "cat \\"$NIGHTCREW_PROMPT_FILE\\"", "{prompt}"]\n'
TASK = '[[tasks]]\nid = "{name}"\nkind = "teller"\nprompt = "{prompt}"\n'
NOTE = "---\ntitle: Flaky network tests\npaths: [tests/net/**]\n---\n\nThe ports of tests/net are taken at random.\n"


def test_all_begin_alike_and_get_what_their_task_is_about(house: House) -> None:
    kinds = house.config.parent / "kinds"
    kinds.mkdir()
    (kinds / "teller.toml").write_text(KIND)
    house.start_daemon()
    plan = TASK.format(name="nothing", prompt="Count the words.")
    house.ok("run", house.plan(plan))
    assert house.ok("logs", "nothing") == "Count the words.", "a memory that nobody uses costs nothing"
    (project,) = (house.home.root / "projects").iterdir()
    (project / "memory" / "semantic").mkdir()
    (project / "memory" / "semantic" / "ports.md").write_text(NOTE)
    (project / "memory" / "core.md").write_text("Never push to main.\n")
    house.ok(
        "run", house.plan(TASK.format(name="ports", prompt="Mend tests/net/test_ports.py") + TASK.format(name="words", prompt="Zählen."))
    )
    ports, words = house.ok("logs", "ports"), house.ok("logs", "words")
    begin = ports[: ports.index("Notes that may help")]
    assert "Never push to main." in begin and words.startswith(begin), "byte for byte the same"
    assert "| The ports of tests/net are taken at random." in ports and "semantic/ports.md" in ports
    assert "ports.md" not in words and words.endswith("Zählen.") and ports.endswith("Mend tests/net/test_ports.py")
    with contextlib.closing(sqlite.connect_readonly(project / "memory.db", book=BOOK)) as db:
        given = db.execute("SELECT path, task, given FROM reading ORDER BY path, task").fetchall()
    assert [tuple(row) for row in given] == [
        ("core.md", house.task("ports").id, 1),
        ("core.md", house.task("words").id, 1),
        ("semantic/ports.md", house.task("ports").id, 1),
    ]
