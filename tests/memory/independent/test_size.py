"""Many notes, mails and days: what the memory answers is held against what the trial itself wrote down. From docs/memory.md alone."""

from __future__ import annotations

import json
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.client import protocol
from tests.memory.independent.town import Agent, Town
from tests.support import wait_until

SETTINGS = '[memory]\nsemantic_max = "1GiB"\n'
"""So that age and words decide what is pruned, and not the amount."""
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Size:
    notes: int
    mails: int
    days: int
    lines: int


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path, {"ada": 0, "ben": 0}, SETTINGS)
    try:
        yield made
    finally:
        made.house.reap()


def note(number: int) -> str:
    """Its words are nobody else's; some are out of date, by each of the rules."""
    head = [f"title: note about w{number}w", f"tags: [t{number % 7}t]"]
    head += ["expires: 2020-01-01"] * expired(number)
    head += [f"supersedes: semantic/n{number - 1}.md"] * replaced(number - 1)
    head += ["paths: [gone/**]"] * about_nothing(number)
    return "---\n" + "\n".join(head) + f"\n---\nThe words of u{number}u, in group g{number % 10}g.\n"


def expired(number: int) -> bool:
    return number % 50 == 11


def replaced(number: int) -> bool:
    return number % 50 == 21


def about_nothing(number: int) -> bool:
    return number % 50 == 31


def goes(number: int) -> bool:
    return expired(number) or replaced(number) or about_nothing(number)


def days(size: Size) -> dict[str, list[str]]:
    """Of each day its lines; the last two are older than `memory.episodic`."""
    found = {}
    for age in [*range(1, size.days - 1), 40, 41]:
        at = time.time() - age * DAY_S
        name = time.strftime("%Y-%m-%d", time.gmtime(at))
        found[name] = [
            json.dumps({"v": 1, "ts": at, "seq": n, "agent": "shell", "type": f"kind{n % 3}", "text": f"line {n} of {name}"})
            for n in range(size.lines)
        ]
    return found


def trial(town: Town, size: Size) -> None:
    town.start()
    written = {f"semantic/n{number}.md": note(number) for number in range(size.notes)}
    written |= {f"episodic/{name}.jsonl": "\n".join(lines) + "\n" for name, lines in days(size).items()}
    written["core.md"] = "What everybody is told."
    for path, text in written.items():
        town.file(path, text)
    assert listed(town) == {*written}
    ada = town.agents["ada"]
    search(ada, size)
    brief(town)
    mails(town, size)
    export(town, written, "before.tar.gz")
    prune(town, size, written)
    moved(town)


PARTS = ("core", "episodic/", "semantic/e", *(f"semantic/n{digit}" for digit in range(10)))
"""Prefixes that leave less than 2,000 files each, which is as many as one answer names."""


def listed(town: Town) -> set[str]:
    said = town.person("mem", "ls")
    assert not said["refused"], said["refused"][:3]
    if not said["more"]:
        return {entry["path"] for entry in said["entries"]}
    parts = [town.person("mem", "ls", part) for part in PARTS]
    assert not any(part["more"] for part in parts)
    found = {entry["path"] for part in parts for entry in part["entries"]}
    assert len(found) == len(said["entries"]) + said["more"], "`more` says how many are not named"
    return found


def search(agent: Agent, size: Size) -> None:
    """Each word that one note alone has finds that note, and none that has expired."""
    for number in range(1, size.notes, max(1, size.notes // 50)):
        for word in (f"u{number}u", f"w{number}w"):
            hits = [hit["path"] for hit in agent.ask("mem", "search", query=word)["hits"]]
            assert hits == ([] if expired(number) else [f"semantic/n{number}.md"]), (word, hits)
    hits = agent.ask("mem", "search", query="g3g", limit=20)["hits"]
    assert all(int(hit["path"][10:-3]) % 10 == 3 for hit in hits)
    assert len({hit["path"] for hit in hits}) == len(hits) > 0


def brief(town: Town) -> None:
    """What a task is told: at most 8 KiB, and in it the note that has its words."""
    done = town.house.ok("mem", "brief", f"{town.run_id}/ada")
    assert len(done.encode()) <= 8192 + 200
    assert "What everybody is told." in done


def mails(town: Town, size: Size) -> None:
    """Each is given once, with its words, to whom it was sent; a person is not held back."""
    agents, sent, got = [town.agents["ada"], town.agents["ben"]], Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    number = 0
    while number < size.mails:
        for _ in range(min(300, size.mails - number)):  # 200 messages wait in a mailbox at most
            to = agents[number % 2].name
            letter = {"op": "send", "to": to, "type": "info", "text": f"mail {number} for {to}", "project": town.project.name}
            protocol.call(town.house.home.daemon_socket, "mail", letter)  # as the command does, thousands of times
            sent[to, f"mail {number} for {to}"] += 1
            number += 1
        for agent in agents:
            while mail := agent.ask("mail", "read")["mail"]:
                got[agent.name, mail["text"].strip()] += 1
    assert got == sent


def export(town: Town, written: dict[str, str], name: str) -> None:
    """The archive holds every file, byte for byte."""
    town.house.ok("mem", "export", str(town.house.home.root.parent / name))
    with tarfile.open(town.house.home.root.parent / name) as archive:
        held = {member.name: file.read().decode() for member in archive if (file := archive.extractfile(member))}
    assert "provenance.json" in {Path(one).name for one in held}
    assert {one.removeprefix("memory/"): text for one, text in held.items() if not one.endswith("provenance.json")} == written


def prune(town: Town, size: Size, written: dict[str, str]) -> None:
    """What goes is what the trial made to go; what stays is as it was; what went comes back."""
    old = sorted(path for path in written if path.startswith("episodic/"))[:2]
    expected = {f"semantic/n{number}.md" for number in range(size.notes) if goes(number)} | {*old}
    assert listed(town) == {*written}
    town.person("mem", "prune")
    assert listed(town) == {*written}, "without --yes it only says so"
    town.house.ok("mem", "prune", "--yes")
    summaries = {f"semantic/episodes-{Path(path).stem}.md" for path in old}
    assert listed(town) == ({*written} - expected) | summaries
    for path in sorted(summaries):
        assert str(size.lines // 3) in (town.memory / path).read_text(), "it counts the day's records by agent and type"
    for path in {*written} - expected:
        assert (town.memory / path).read_text() == written[path]
    back = f"semantic/n{next(number for number in range(size.notes) if expired(number))}.md"
    town.house.ok("mem", "restore", back)
    assert (town.memory / back).read_text() == written[back]


def moved(town: Town) -> None:
    """In a memory that was emptied, an import makes the same files again, and a second one changes nothing."""
    archive = str(town.house.home.root.parent / "after.tar.gz")
    town.house.ok("mem", "export", archive)
    before = {path: (town.memory / path).read_text() for path in listed(town)}
    for path in before:
        (town.memory / path).unlink()
    wait_until(lambda: not listed(town), "the memory to be empty")
    for _ in range(2):
        town.house.ok("mem", "import", archive, timeout_s=600)
        assert {path: (town.memory / path).read_text() for path in listed(town)} == before


def test_some_of_everything(large: Town) -> None:
    trial(large, Size(notes=80, mails=40, days=4, lines=60))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_ten_times_the_size(large: Town) -> None:
    trial(large, Size(notes=10_000, mails=5000, days=30, lines=2000))
