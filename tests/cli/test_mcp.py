"""`nightcrew mcp` against the official client SDK: over stdio, and in one process where only the tools matter.

Who uses the SDK imports it: every process that collects the tests would take 0.6 s for it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from supervisor.features.mcp import serving
from supervisor.host import attempt_tokens, secrets
from tests.support import House, git, shell_task, wait_until

if TYPE_CHECKING:
    from mcp.client.client import Client

COMMIT = "echo made > made; git add made; git -c user.name=a -c user.email=a@b commit -qm made"
ESCAPE = "\x1b]0;owned\x07"


@pytest.fixture
def here(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    """This process speaks for the person of the house."""
    for name, text in house.env.items():
        monkeypatch.setenv(name, text)
    monkeypatch.chdir(house.repo)
    house.start_daemon()
    return house


@contextlib.asynccontextmanager
async def session(*, agree: bool | None = None) -> AsyncIterator[Client]:
    """A person's session; `agree`: what the person says when asked, None where the client cannot ask."""
    from mcp.client.client import Client
    from mcp_types import ElicitResult

    from supervisor.features.mcp import person

    async def asked(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept" if agree else "decline", content={"merge": True} if agree else None)

    async with Client(person.server(), elicitation_callback=asked if agree is not None else None) as client:
        yield client


async def call(client: Client, tool: str, **args: Any) -> dict[str, Any]:
    """The tool's answer, which must be no error."""
    done = await client.call_tool(tool, args)
    assert not done.is_error and done.structured_content is not None, done.content
    found: dict[str, Any] = done.structured_content
    return found


async def refused(client: Client, tool: str, **args: Any) -> str:
    """What the tool says of why not."""
    done = await client.call_tool(tool, args)
    assert done.is_error, done.structured_content
    return " ".join(getattr(part, "text", "") for part in done.content)


@pytest.mark.asyncio
async def test_a_session_conducts_a_crew_over_stdio(house: House) -> None:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters

    house.start_daemon()
    server = StdioServerParameters(command=sys.executable, args=["-I", "-m", "supervisor.cli.main", "mcp"], env=house.env, cwd=house.repo)
    async with Client(server) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {
            "list_agents", "explain", "add_task", "wait", "read_result", "diff", "read_transcript", "send", "kill", "take", "limits",
            "memory",
        }  # fmt: skip
        first = await call(client, "add_task", text=COMMIT, id="first", title=f"a {ESCAPE} title")
        second = await call(client, "add_task", text=f"printf '{ESCAPE}done\\n'; false", id="second", after=["first"], on="finished")
        ended = await call(client, "wait", tasks=["first", "second"])
        assert {one["id"]: one["state"] for one in ended["ended"]} == {first["task"]: "done", second["task"]: "failed"}
        shown = json.dumps(await call(client, "list_agents")) + json.dumps(await call(client, "read_result", name="first"))
        assert "\\u001b" not in shown and "\\\\x1b" in shown, "escapes are text by now"


@pytest.mark.asyncio
async def test_reads_are_data_and_errors_say_what_to_do(here: House) -> None:
    here.ok("add", "-f", "--id", "made", COMMIT)
    here.ok("add", "--id", "goes-on", "exec sleep 600")
    async with session() as client:
        assert (await call(client, "wait", tasks=["goes-on"], timeout_s=0))["unfinished"]
        part = await call(client, "diff", name="made")
        assert "+made" in part["text"] and part["note"] == serving.NOTE and part["next_offset"] is None
        assert (await call(client, "explain", name="made"))["status"]["state"] == "done"
        assert (await call(client, "limits"))["gateway"] is None
        assert "no task or run is called nobody; next: nightcrew status --all" in await refused(client, "read_result", name="nobody")
        assert "is no stream of JSON" in await refused(client, "read_transcript", name="made")
        assert "a task of kind shell reads no terminal" in await refused(client, "send", name="goes-on", text="x")
        assert "Extra inputs are not permitted" in await refused(client, "add_task", text="x", network=False), "it may be a restriction"
        assert "is not a kind of agent" in await refused(client, "add_task", text="x", kind="nobody")
        assert (await call(client, "kill", names=["goes-on"]))["asked"] == [here.task("goes-on").id]


def test_a_long_text_is_cut_and_goes_on() -> None:
    first = serving.quoted("x", "\x1b" * 30_000)
    assert len(first["text"]) == serving.TEXT_MAX == first["next_offset"] and first["text"].startswith("\\x1b")
    assert serving.quoted("x", "\x1b" * 30_000, 80_000) == {**first, "next_offset": None}


@pytest.mark.asyncio
async def test_take_changes_nothing_until_it_is_confirmed_and_agreed(here: House) -> None:
    here.ok("add", "-f", "--id", "made", COMMIT)
    before = git(here.repo, "rev-parse", "HEAD")
    async with session() as client:
        planned = await call(client, "take", name="made")
        assert not planned["merged"] and "made" in planned["changes"] and git(here.repo, "rev-parse", "HEAD") == before
        assert "confirm is not its last commit" in await refused(client, "take", name="made", confirm="yes")
    async with session(agree=False) as client:
        assert "the person did not agree" in await refused(client, "take", name="made", confirm=planned["confirm"])
        assert git(here.repo, "rev-parse", "HEAD") == before
    tip = git(here.repo, "rev-parse", here.task("made").branch or "")
    git(here.repo, "update-ref", f"refs/heads/{here.task('made').branch}", "HEAD")
    async with session(agree=True) as client:
        assert "was agreed to" in await refused(client, "take", name="made", confirm=planned["confirm"]), "the branch was moved meanwhile"
        git(here.repo, "update-ref", f"refs/heads/{here.task('made').branch}", tip)
        assert (await call(client, "take", name="made", confirm=planned["confirm"]))["merged"]
    assert (here.repo / "made").read_text() == "made\n"


@pytest.mark.asyncio
async def test_an_agents_tools_reach_its_own_tasks_alone(here: House, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp.client.client import Client

    from supervisor.features.mcp import agent

    here.ok("run", "--detach", here.plan(shell_task("lead", "exec sleep 600", children_max=2) + shell_task("other", "exec sleep 600")))
    wait_until(lambda: here.task("lead").attempt_state == "running", "it to run")
    monkeypatch.setenv("NIGHTCREW_AGENTS_SOCKET", str(here.home.agents_socket))
    async with Client(agent.server()) as client:
        assert "NIGHTCREW_TOKEN is not set" in await refused(client, "budget")
        monkeypatch.setenv("NIGHTCREW_TOKEN", attempt_tokens.derive(secrets.own(here.home.secret), here.task("lead").id, 1))
        assert (await call(client, "budget"))["children_max"] == 2
        task = (await call(client, "add_task", text=f"printf '{ESCAPE}\\n'; echo '{{\"n\": 7}}'", id="child"))["task"]
        assert [one["state"] for one in (await call(client, "wait", tasks=[task]))["ended"]] == ["done"]
        assert (await call(client, "read_result", task="child"))["result"]["output"] == {"n": 7}
        assert [one["task"] for one in (await call(client, "list_tasks"))["tasks"]] == [task]
        assert "none of its tasks" in await refused(client, "kill", tasks=[here.task("other").id])
        await call(client, "add_task", text="true")
        assert "children_max of" in await refused(client, "add_task", text="false")
    async with Client(agent.server(conducts=False, shares=True)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["memory", "mail", "lease"]
        made = await call(client, "memory", op="put", path="semantic/port.md", text=f"port 8080 {ESCAPE}\n", if_version="")
        assert [one["path"] for one in (await call(client, "memory", op="ls", path="semantic"))["entries"]] == ["semantic/port.md"]
        shown = await call(client, "memory", op="show", path="semantic/port.md")
        assert shown["version"] == made["version"] and "\x1b" not in shown["text"] and shown["note"] == serving.NOTE
        assert "another agent's notes" in await refused(client, "memory", op="put", path="agents/a/b/notes.md", text="x")
        assert (await call(client, "mail", op="send", to="person", text="done"))["mail"]["to"] == "person"
        assert (await call(client, "lease", op="take", globs=["src/**"]))["leases"][0]["glob"] == "src"


@pytest.mark.asyncio
async def test_an_agent_has_the_tools_that_its_task_and_the_settings_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tool is paid for in every request."""
    from mcp.client.client import Client

    from supervisor.features.mcp import agent

    for said, first in (({"children_max": 0, "memory_tools": True}, "memory"), ({"children_max": 2, "memory_tools": False}, "budget")):
        served: list[Any] = []
        monkeypatch.setattr(agent, "ask", lambda _, said=said: said)
        monkeypatch.setattr("mcp.server.mcpserver.MCPServer.run", lambda self, _, served=served: served.append(self))
        agent.serve()
        async with Client(served[0]) as client:
            tools = (await client.list_tools()).tools
            size = sum(len(tool.model_dump_json(include={"name", "description", "input_schema"})) for tool in tools)
        assert tools[0].name == first and len(tools) == (3 if first == "memory" else 7)
        assert size < (2_600 if first == "memory" else 4_600), "bytes that every request carries"


@pytest.mark.asyncio
async def test_a_person_reads_the_memory_and_the_inbox(here: House) -> None:
    here.ok("mem", "put", "semantic/port.md", "--text", f"port 8080 {ESCAPE}")
    async with session() as client:
        assert [one["path"] for one in (await call(client, "memory", op="ls"))["entries"]] == ["semantic/port.md"]
        shown = await call(client, "memory", op="show", what="semantic/port.md")
        assert "port 8080" in shown["text"] and "\x1b" not in shown["text"] and shown["note"] == serving.NOTE
        assert (await call(client, "memory", op="search", what="port"))["hits"][0]["path"] == "semantic/port.md"
        assert (await call(client, "memory", op="mail"))["mails"] == []
        tool = next(one for one in (await client.list_tools()).tools if one.name == "memory")
    assert len(tool.model_dump_json(include={"name", "description", "input_schema"})) < 700, "bytes that every request carries"
