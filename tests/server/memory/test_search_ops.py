"""Search, briefings and pruning as they are asked for at the sockets."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from memory.versions import ReadBook
from supervisor.kernel.errors import NotFound, Refused, UsageError
from tests.server.memory.kit import PROJECT, Kit, eventually, memory_desk

pytestmark = pytest.mark.asyncio
AGENT = "1123-abcd/fix"


def paths(answer: dict[str, object], key: str = "hits") -> list[str]:
    return [one["path"] for one in answer[key]]  # type: ignore[attr-defined]


async def test_what_changes_is_found_at_once(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        kit.write("semantic/ports.md", "---\ntitle: Ports\npaths: [net/**]\n---\nTaken at random.\n")
        await kit.followed()
        assert paths(await kit.mem("search", query="random ports", author=AGENT)) == ["semantic/ports.md"]
        kit.write("semantic/ports.md", "# Sockets\n")
        await eventually(lambda: not kit.desk.search._held[PROJECT].stale, "the debounce")

        async def gone() -> bool:
            return not paths(await kit.mem("search", query="random"))

        deadline = time.monotonic() + 40
        while not await gone():
            assert time.monotonic() < deadline
        assert paths(await kit.mem("search", query="sockets")) == ["semantic/ports.md"]


async def test_what_is_no_question_is_refused(tmp_path: Path) -> None:
    wrong: list[dict[str, object]] = [
        {}, {"query": 5}, {"query": ""}, {"query": "x" * (2**20 + 1)}, {"query": "x", "limit": 1e9}, {"query": "x", "limit": 10**400},
        {"query": "x", "limit": float("nan")}, {"query": "x", "limit": "y"},
        {"query": "x", "paths": "a"}, {"query": "x", "paths": [5]}, {"query": "x", "paths": ["a"] * 65},
    ]  # fmt: skip
    async with memory_desk(tmp_path) as kit:
        for args in wrong:
            with pytest.raises(UsageError):
                await kit.mem("search", AGENT, **args)


async def test_a_briefing_says_what_an_agent_would_be_told(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        assert (await kit.mem("brief", prompt="Mend the ports."))["prefix"] == "", "nobody used the memory"
        kit.write("core.md", "Never push.\n")
        kit.write("semantic/ports.md", "Ports are taken at random.\n")
        told = await kit.mem("brief", prompt="Mend the ports.")
        assert "Never push." in told["prefix"] and told["paths"] == ["semantic/ports.md"] and told["bytes"] <= told["bytes_max"]
        other = await kit.mem("brief", prompt="Something else.")
        assert other["prefix"] == told["prefix"] and other["digest"] == told["digest"] and not other["rest"]
        with pytest.raises(Refused):
            await kit.mem("brief", AGENT, task="1123-abcd/other")
        with pytest.raises(NotFound):
            await kit.mem("brief", task="1123-abcd/other")
        everybody = await kit.mem("brief")
        assert everybody["prefix"] == told["prefix"] and not everybody["rest"]


def _old_notes(kit: Kit) -> None:
    now = time.time()
    kit.write("semantic/over.md", "---\nexpires: 2020-01-01\n---\nIt was so.\n")
    kit.write("semantic/gone.md", "---\npaths: [lib/gone.py]\n---\nIt was so.\n")
    kit.write("semantic/unread.md", "Nobody asks.\n")
    kit.write("semantic/read.md", "Somebody asks.\n")
    kit.write("semantic/new.md", "It is so.\n")
    kit.write("episodic/2020-01-01.jsonl", '{"ts": 1577836800, "agent": "claude", "type": "done", "text": "Built it."}\n')
    for name in ("unread", "read"):
        os.utime(kit.memory / f"semantic/{name}.md", (now - 61 * 86400,) * 2)


async def test_pruning_says_first_and_then_archives(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        kit.desk.layout(PROJECT)
        _old_notes(kit)
        kit.desk.search.tracked = lambda _: ["src/here.py"]
        await kit.desk.search.read(PROJECT, ["semantic/read.md"], AGENT)
        with pytest.raises(Refused):
            await kit.mem("prune", AGENT, dry=False)
        said = await kit.mem("prune")
        going = ["episodic/2020-01-01.jsonl", "semantic/gone.md", "semantic/over.md", "semantic/unread.md"]
        assert said["dry"] and sorted(paths(said, "pruned")) == going and not said["summaries"] and said["dead_paths"]
        assert all((kit.memory / path).exists() for path in going), "only said"
        done = await kit.mem("prune", dry=False)
        assert sorted(paths(done, "pruned")) == going and done["summaries"] == ["semantic/episodes-2020-01-01.md"] and not done["kept"]
        root = kit.desk.layout(PROJECT).root
        assert all(not (kit.memory / one["path"]).exists() and (root / one["to"]).exists() for one in done["pruned"]), "nothing is deleted"
        assert "- claude: 1 × done" in (kit.memory / "semantic/episodes-2020-01-01.md").read_text()
        assert not (await kit.mem("prune"))["pruned"], "and then it is done"
        assert paths(await kit.mem("search", query="built")) == ["semantic/episodes-2020-01-01.md"]


async def test_what_cannot_go_stays_and_the_rest_goes(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        kit.desk.layout(PROJECT)
        kit.write("semantic/over.md", "---\nexpires: 2020-01-01\n---\nIt was so.\n")
        (kit.memory / "semantic/link.md").symlink_to("/etc/passwd")
        os.mkfifo(kit.memory / "semantic/pipe.md")
        said = await kit.mem("prune", dry=False)
        assert paths(said, "pruned") == ["semantic/over.md"] and not said["dead_paths"], "nobody knew which files there are"


async def test_reads_are_counted(tmp_path: Path) -> None:
    async with memory_desk(tmp_path) as kit:
        await kit.desk.search.read(PROJECT, ["semantic/a.md"], AGENT)
        await kit.desk.search.read(PROJECT, ["semantic/a.md"], "person")
        with ReadBook.opened(kit.desk.layout(PROJECT).book) as book:
            assert (book.reads()["semantic/a.md"].hits, book.reads()["semantic/a.md"].readers) == (2, 2)
