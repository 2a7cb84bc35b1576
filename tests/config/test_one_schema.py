"""A key of a task is one field with a `Key`: plan, command line, task API, agents' socket, MCP and the documents follow from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools import task_keys

ROOT = Path(__file__).resolve().parents[2]

NEW = """    burst: Annotated[
        int, Key(help="Requests at once.", by=By.PROJECT | By.ADD | By.START | By.API | By.AGENT | By.TOOL | By.AGENT_TOOL, least=1, most=9)
    ] = 0
"""

PROGRAM = """
import sys, types
from pathlib import Path

import supervisor.kernel

source = Path("supervisor/kernel/spec.py").read_text(encoding="utf-8")
marker = '    assigned: str = ""'
assert source.count(marker) == 1
spec = types.ModuleType("supervisor.kernel.spec")
spec.__file__ = str(Path("supervisor/kernel/spec.py").resolve())
sys.modules["supervisor.kernel.spec"] = supervisor.kernel.spec = spec
exec(compile(source.replace(marker, NEW + marker), spec.__file__, "exec"), vars(spec))

from click.testing import CliRunner

from agents.kinds import kinds
from supervisor.config import plan
from supervisor.config.project import DefaultsModel
from supervisor.features.api.models import TaskRequest
from supervisor.features.mcp import agent, person, serving
from supervisor.cli import start
from supervisor.kernel import codec
from supervisor.kernel.errors import ConfigError, UsageError
from supervisor.server import agent_requests

place = Path(sys.argv[1]) / "plan.toml"
place.write_text('[defaults]\\nburst = 3\\n[[tasks]]\\nid = "a"\\ncommand = "x"\\n[[tasks]]\\nid = "b"\\ncommand = "x"\\nburst = 5\\n')
made = plan.load(place, kinds()).tasks
assert [task.burst for task in made] == [3, 5], made
assert codec.loads(spec.TaskSpec, codec.dumps(made[1])) == made[1]
place.write_text('[[tasks]]\\nid = "a"\\ncommand = "x"\\nburst = 10\\n')
try:
    plan.load(place, kinds())
except ConfigError as error:
    assert f"{place}:4 tasks.burst" in error.on and "less than or equal to 9" in error.why, error.line()
else:
    raise AssertionError("out of bounds")
assert DefaultsModel.model_validate({"burst": 2}).burst == 2

for command in (start.command_add, start.command):
    shown = CliRunner().invoke(command, ["--help"]).output
    assert "--burst" in shown and "Requests at once." in shown and "1<=x<=9" in shown, shown

assert plan.single(("x",), kinds(), {"id": "a", "burst": 4}).tasks[0].burst == 4
properties = TaskRequest.model_json_schema()["properties"]
assert properties["burst"]["description"] == "Requests at once." and "burst" in TaskRequest(burst=4).options()
assert agent_requests._options({"burst": "4"}) == {"burst": 4}
for tool in (agent.add_task, person.add_task):
    served = serving.server("", {tool: serving.ADDS})
    (shown,) = served._tool_manager.list_tools()
    assert shown.parameters["properties"]["burst"]["description"] == "Requests at once.", shown.parameters

from tools import task_keys

assert task_keys.missing("") and "| `burst` | number, from 1, up to 9 | none | Requests at once. |" in task_keys.missing("")
print("found everywhere")
"""


def test_a_key_that_is_added_to_the_schema_is_everywhere(tmp_path: Path) -> None:
    program = f"NEW = {NEW!r}\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, "found everywhere"), done.stderr


def test_the_page_of_plans_has_a_row_for_each_key() -> None:
    assert task_keys.missing((ROOT / "docs/plan.md").read_text(encoding="utf-8")) == []
