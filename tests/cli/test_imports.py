"""What is asked for all day starts quickly: only click, the standard library, and modules of ours that need no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import House

HEAVY = {"pydantic", "git", "gitdb", "libtmux", "psutil", "platformdirs", "asyncio", "agents", "worktrees", "textual", "rich"}

PROGRAM = """
import sys
from supervisor.cli.main import main
try:
    main(sys.argv[1:])
finally:
    here = {name.partition(".")[0] for name in sys.modules}
    print("modules:", *sorted(here), file=sys.stderr)
"""


def imported(house: House, *words: str, env: dict[str, str] | None = None) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, *words],
        env={**house.env, **(env or {})},
        cwd=house.repo,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return set(done.stderr.rpartition("modules:")[2].split())


@pytest.mark.parametrize("words", [["--help"], ["status"], ["status", "--json", "good"], ["logs", "good"], ["wait", "good"]], ids=" ".join)
def test_looking_imports_nothing_heavy(crew: House, words: list[str]) -> None:
    seen = imported(crew, *words)
    assert "click" in seen and "supervisor" in seen, "the program ran"
    strangers = {
        name for name in seen - sys.stdlib_module_names - {"click", "supervisor", "memory", "__main__"} if not name.startswith("_")
    }
    assert seen & HEAVY == set() and strangers <= {"sitecustomize"}, "a package that `status` would pay for"


@pytest.mark.parametrize("verb", ["kill", "pause", "resume"])
def test_who_asks_a_supervisor_that_runs_reads_no_settings(crew: House, verb: str) -> None:
    seen = imported(crew, verb, "good")  # it has ended: nothing happens to it
    assert "supervisor" in seen and seen & (HEAVY - {"agents"}) == set()


def test_completion_imports_nothing_heavy_and_knows_names(crew: House) -> None:
    words = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_WORDS": "nightcrew kill ag", "COMP_CWORD": "2"}
    assert imported(crew, env=words) & HEAVY == set()
    assert crew.run(env=words).stdout.split() == ["plain,agent-1", "plain,agent"]


def test_completion_never_complains(house: House) -> None:
    words = {"_NIGHTCREW_COMPLETE": "bash_complete", "COMP_WORDS": "nightcrew kill ag", "COMP_CWORD": "2"}
    for content in (None, b"", b"no ledger at all" * 1000):
        if content is not None:
            house.home.root.mkdir(exist_ok=True)
            Path(house.home.ledger).write_bytes(content)
        done = house.run(env=words)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_the_line_for_a_prompt_imports_next_to_nothing(crew: House) -> None:
    program = PROGRAM.replace("supervisor.cli.main", "nightcrew").replace("main(sys.argv[1:])", "main()")
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, "statusline"], env=crew.env, cwd=crew.repo, capture_output=True, text=True, check=True
    )
    seen = set(done.stderr.rpartition("modules:")[2].split())
    assert done.stdout.strip().endswith("W") and "supervisor" in seen
    assert seen & (HEAVY | {"click", "textual", "rich"}) == set()


def test_a_supervisor_has_the_log_of_a_gateway_without_its_server() -> None:
    """aiohttp is a sixth of what a supervisor would import."""
    program = "import sys, supervisor.server.loop; print('supervisor.gateway.provider_keys' in sys.modules, 'aiohttp' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-I", "-c", program], text=True).split() == ["True", "False"]


def test_the_counter_can_fail(crew: House) -> None:
    assert "pydantic" in imported(crew, "run", "no-such-plan.toml")
