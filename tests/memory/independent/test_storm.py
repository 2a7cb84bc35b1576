"""Nothing that was acknowledged is lost, whenever the supervisor is killed: judged by books that agents and a person keep for themselves.

Written from docs/memory.md alone. Every process of the storm writes what it was told into a file of its own and syncs it before it goes on
(`door.Book`); in the end that is held against what the memory, the mailboxes and the history say.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.memory.independent.door import Book, ask
from tests.support import House, plan_of, shell_task, wait_until

AGENTS = ("ada", "ben", "cem")
SCRIPT = Path(__file__).with_name("storm_agent.py")
Line = dict[str, Any]


class Person:
    """A person with an editor: notes of their own, one save into each note that agents write, lines of the day, mails as files."""

    def __init__(self, place: Path, memory: Path, mail: Path, run: str, seed: int) -> None:
        self._place, self._memory, self._mail, self._run = place, memory, mail, run
        self._book, self._rng = Book(str(place / "person.book")), random.Random(f"{seed} person")

    def work(self, over: threading.Event) -> None:
        for count in range(1_000_000):
            if over.wait(0.02):
                return
            self._rng.choice((self._note, self._both, self._line, self._letter))(count)

    def _save(self, path: str, text: str) -> None:
        draft = self._memory / path.replace("/", "/.draft-")
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text)
        draft.rename(self._memory / path)

    def _note(self, count: int) -> None:
        path = f"semantic/person-{count}.md"
        self._save(path, f"person-{count}-words")
        self._book.write("save", path=path, text=f"person-{count}-words")

    def _both(self, count: int) -> None:
        path = f"semantic/both-{count}.md"
        (self._place / "round.tmp").write_text(path)
        (self._place / "round.tmp").rename(self._place / "round")
        time.sleep(self._rng.uniform(0, 0.1))
        self._save(path, f"person-{count}-both")
        self._book.write("save", path=path, text=f"person-{count}-both")

    def _line(self, count: int) -> None:
        now = time.time()
        day = self._memory / "episodic" / time.strftime("%Y-%m-%d.jsonl", time.gmtime(now))
        day.parent.mkdir(exist_ok=True)
        handle = os.open(day, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.write(handle, json.dumps({"v": 1, "ts": now, "type": "note", "text": f"person-{count}-line"}).encode() + b"\n")
        finally:
            os.close(handle)
        self._book.write("append", text=f"person-{count}-line")

    def _letter(self, count: int) -> None:
        to = self._rng.choice(AGENTS)
        box = self._mail / self._run / to
        if (box / "new").is_dir():
            (box / "tmp" / f"letter-{count}.md").write_text(f"person-{count}-letter")
            (box / "tmp" / f"letter-{count}.md").rename(box / "new" / f"letter-{count}.md")
            self._book.write("letter", to=to, text=f"person-{count}-letter")


@contextlib.contextmanager
def busy(person: Person) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=person.work, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def lines(place: Path) -> list[Line]:
    """All books, each line with `who` and `role`. No line is torn: nobody kills who writes a book."""
    found = []
    for book in sorted(place.glob("*.book")):
        who, _, role = book.name.removesuffix(".book").partition(".")
        found += [{**json.loads(line), "who": who, "role": role} for line in book.read_text().splitlines()]
    return found


def size(place: Path) -> int:
    return sum(1 for line in lines(place) if line["role"] == "actor" and "answer" in line)


def storm(house: House, place: Path, kills: int, seed: int) -> None:
    print(f"NIGHTCREW_TEST_SEED={seed}")
    rng = random.Random(seed)
    place.mkdir()
    daemon = house.start_daemon()
    tasks = [
        shell_task(name, [sys.executable, "-I", "-S", str(SCRIPT), str(place), str(seed), *(n for n in AGENTS if n != name)])
        for name in AGENTS
    ]
    run = house.ok("run", "-d", house.plan(plan_of(tasks))).split("/")[0]
    wait_until(lambda: len(list(place.glob("*.actor.book"))) == len(AGENTS), "the agents")
    (project,) = (house.home.root / "projects").iterdir()
    with busy(Person(place, project / "memory", project / "mail", run, seed)):
        for _ in range(kills):
            known = size(place)
            wait_until(lambda known=known: size(place) >= known + 8, "eight acknowledgements")  # type: ignore[misc]  # bound in the loop
            time.sleep(rng.uniform(0, 0.4))  # the moment of the kill, whatever is under way
            daemon.kill()
            daemon.wait()
            daemon = house.start_daemon(wait=rng.random() < 0.7)
        wait_until(house.ready, "a supervisor")
    (place / "stop").touch()
    wait_until(lambda: len(list(place.glob("*.env"))) == len(AGENTS), "the agents to read what waits")
    envs = {name: json.loads((place / f"{name}.env").read_text()) for name in AGENTS}
    judge(house, lines(place), envs, project / "memory")
    (place / "leave").touch()


def judge(house: House, book: list[Line], envs: Mapping[str, Mapping[str, str]], memory: Path) -> None:
    told = Counter(line["what"] for line in book)
    print(dict(told))
    assert all(told[what] for what in ("put", "append", "mail", "take", "save", "letter", "read", "swap")), told
    house.ok("mem", "ls")
    judge_versions(book, history(book, envs["ada"]), envs["ada"], memory)
    judge_day(book, memory)
    judge_mail(book, envs, memory.parent / "mail")
    judge_leases(book)


def history(book: list[Line], env: Mapping[str, str]) -> list[Line]:
    """Every recorded change of the notes of the books; one request gives at most 1,000."""
    paths = {line["path"] for line in book if "path" in line} | {line["answer"].get("conflict") for line in book if "answer" in line}
    found = [change for path in sorted(filter(None, paths)) for change in ask(env, "mem", op="log", path=path, limit=1000)["changes"]]
    assert max(Counter(change["path"] for change in found).values()) < 1000
    return found


def judge_versions(book: list[Line], changes: list[Line], env: Mapping[str, str], memory: Path) -> None:
    """Every text that was acknowledged is a version, and no number or counter was given twice."""
    numbers = Counter(change["number"] for change in changes)
    assert not [number for number, count in numbers.items() if count > 1]
    kept = {(change["path"], change["version"]) for change in changes}
    texts: dict[str, str] = {}
    for line in book:
        if line["what"] in ("put", "swap"):
            answer = line["answer"]
            path = answer["conflict"] or line["path"]
            assert (path, answer["version"]) in kept, f"acknowledged, and no row of the history has it: {line}"
            shown = ask(env, "mem", op="show", path=path, version=answer["version"])["text"]
            assert line["text"] in shown, f"acknowledged, and not what was written: {line} {shown}"
    on_disk = " ".join(path.read_text() for path in sorted(memory.rglob("*.md")))
    for line in book:
        if line["what"] == "save" and line["text"] not in on_disk:
            rows = [change for change in changes if change["path"] == line["path"]]
            texts = {row["version"]: ask(env, "mem", op="show", path=line["path"], version=row["version"])["text"] for row in rows}
            assert any(line["text"] in text for text in texts.values()), f"what a person saved is neither a file nor a version: {line}"
    raised = Counter(line["number"] for line in book if line["what"] == "swap" and not line["answer"]["conflict"])
    assert not [number for number, count in raised.items() if count > 1], (
        "two agents wrote the same next number, each over the version before"
    )


def judge_day(book: list[Line], memory: Path) -> None:
    day = Counter(json.loads(line)["text"] for path in (memory / "episodic").iterdir() for line in path.read_text().splitlines())
    for line in book:
        if line["what"] == "append":
            assert day[line["text"]] == 1, f"acknowledged, and {day[line['text']]} times in the day: {line}"


def judge_mail(book: list[Line], envs: Mapping[str, Mapping[str, str]], place: Path) -> None:
    """Each is in its recipient's box and was claimed by exactly one reader, or by one whose answer was lost. A person's files are messages
    up to what one stranger may send at once; those beyond lie where the person put them."""
    claims = Counter(line["answer"]["mail"]["id"] for line in book if line["what"] == "read" and line["answer"]["claimed"])
    assert not [mail for mail, count in claims.items() if count > 1], "claimed twice"
    for name, env in envs.items():
        sent = [line for line in book if line["what"] in ("mail", "letter") and line["to"] == name]
        letters = min(10, sum(1 for line in sent if line["what"] == "letter"))
        wait_until(lambda env=env, least=letters: strangers(env) >= least, f"{letters} letters of {name}")  # type: ignore[misc]
        waits = {path.read_text() for path in place.glob(f"*/{name}/new/letter-*.md")}  # no box is made before the first mail
        box = mailbox(env)  # looked at after the files: one of them may become a message meanwhile
        words = {ask(env, "mail", op="read", id=mail)["mail"]["text"].strip(): mail for mail in box}
        assert len(words) == len(box), "the same words are two mails"
        for line in sent:
            if line["what"] == "letter":
                assert line["text"] in words.keys() | waits, f"put into a mailbox, and gone: {line}"
            else:
                assert words.get(line["text"]) == line["answer"]["mail"]["id"], f"accepted, and in no mailbox: {line}"
        unclaimed = [mail for mail, known in box.items() if not claims[mail] and (known["from"] != "unknown" or known["state"] != "new")]
        lost = sum(1 for line in book if line["what"] == "read lost" and line["who"] == name)
        assert len(unclaimed) <= lost, f"{unclaimed} were given to nobody, and only {lost} answers were lost"


def mailbox(env: Mapping[str, str]) -> dict[str, Line]:
    return {mail["id"]: mail for mail in ask(env, "mail", op="ls", all=True)["mails"]}


def strangers(env: Mapping[str, str]) -> int:
    return sum(1 for mail in mailbox(env).values() if mail["from"] == "unknown")


def judge_leases(book: list[Line]) -> None:
    """Who was told that it has a lease has it until it begins to give it back: no other one meanwhile, and fences rise with time."""
    held: list[Line] = []
    for role in sorted({(line["who"], line["role"]) for line in book}):
        taken: Line | None = None
        for line in (line for line in book if (line["who"], line["role"]) == role):
            if line["what"] == "take":
                (lease,) = line["answer"]["leases"]
                taken = {**line, "fence": lease["fence"]}
            elif line["what"] == "back" and taken:
                held.append({**taken, "until": line["at"]})
                taken = None
    for one in held:
        for other in held:
            if one["fence"] != other["fence"] and one["ended"] < other["began"]:
                assert one["fence"] < other["fence"], f"a later lease has a smaller fence: {one} {other}"
            if one["who"] < other["who"]:
                assert one["fence"] != other["fence"]
                apart = one["until"] < other["ended"] or other["until"] < one["ended"]
                alike = one["mode"] == other["mode"] == "shared"
                assert apart or alike or not overlap(one["glob"], other["glob"]), f"both at once: {one} {other}"


def overlap(one: str, other: str) -> bool:
    """Of the few that the agents use: one lies below the other."""
    one, other = one.removesuffix("/**"), other.removesuffix("/**")
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def test_two_kills(house: House, tmp_path: Path) -> None:
    storm(house, tmp_path / "books", kills=2, seed=int(os.environ.get("NIGHTCREW_TEST_SEED", "17")))


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_thirty_five_kills(house: House, tmp_path: Path) -> None:
    storm(house, tmp_path / "books", kills=35, seed=int(os.environ.get("NIGHTCREW_TEST_SEED", str(random.randrange(2**32)))))


def test_the_trials_share_no_code_with_the_product() -> None:
    for name in ("door.py", "storm_agent.py"):
        text = Path(__file__).with_name(name).read_text()
        done = subprocess.run(
            ["grep", "-nE", "^(from|import) (supervisor|agents|memory|worktrees|tests)"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.stdout
