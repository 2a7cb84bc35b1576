"""An agent of the storm, started by nightcrew as a task: `storm_agent.py DIRECTORY SEED OTHER...`.

It puts, appends, writes mail, takes leases and reads its mail with two processes, until DIRECTORY/stop is there. What was acknowledged is a
line of DIRECTORY/NAME.ROLE.book before the next request. What got no answer is a line too: nobody can know what became of it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from door import Book, Denied, ask  # type: ignore[import-not-found,unused-ignore]  # a script of its own: beside it, not in a package

PAUSE_S = 0.01
GLOBS = ("src/0", "src/1", "src/1/deep/**", "src/**")


class Agent:
    def __init__(self, place: Path, seed: str, others: list[str], role: str) -> None:
        self.place, self.others = place, others
        self.name = os.environ["NIGHTCREW_TASK"].rpartition("/")[2]
        self.book = Book(str(place / f"{self.name}.{role}.book"))
        self.rng = random.Random(f"{seed} {self.name} {role}")
        self.count = 0
        self.found: dict[str, Any] = {}

    def over(self) -> bool:
        return (self.place / "stop").exists()

    def once(self, what: str, verb: str, known: dict[str, Any], **args: Any) -> str:
        """One request: `yes`, `no` or `lost`. The book has it before anything else is done; the answer is `self.found`."""
        began, self.found = time.monotonic(), {}
        try:
            self.found = ask(os.environ, verb, **args)
        except Denied as error:
            self.book.write(f"{what} denied", **known, why=str(error))
            return "no"
        except (OSError, ValueError) as error:
            self.book.write(f"{what} lost", **known, why=repr(error))
            time.sleep(PAUSE_S * 5)  # nobody may listen
            return "lost"
        self.book.write(what, **known, began=began, ended=time.monotonic(), answer=self.found)
        return "yes"

    def put(self) -> None:
        path = f"semantic/{self.name}-{self.count % 3}.md"
        self.once("put", "mem", {"path": path, "text": self.words()}, op="put", path=path, text=self.words())

    def swap(self) -> None:
        """A counter that all agents raise: who knows its version writes the next number."""
        path = "semantic/counter.md"
        try:
            seen = ask(os.environ, "mem", op="show", path=path)
        except Denied:
            seen = {"version": "", "text": "number 0"}
        except (OSError, ValueError):
            return
        number = int(seen["text"].rpartition("number ")[2].split()[0]) + 1
        text = f"number {number} of {self.words()}"
        self.once("swap", "mem", {"path": path, "text": text, "number": number}, op="put", path=path, text=text, if_version=seen["version"])

    def beside_a_person(self) -> None:
        """Write where a person saves at this very moment."""
        path = (self.place / "round").read_text() if (self.place / "round").exists() else "semantic/both-0.md"
        self.once("put", "mem", {"path": path, "text": self.words()}, op="put", path=path, text=self.words())

    def append(self) -> None:
        self.once("append", "mem", {"text": self.words()}, op="append", text=self.words())

    def mail(self) -> None:
        """Sent with a key until it is answered, as one does who must know."""
        known = {"to": self.rng.choice(self.others), "text": self.words(), "key": self.words()}
        while self.once("mail", "mail", known, op="send", **known) == "lost" and not self.over():
            pass

    def lease(self) -> None:
        glob, mode = self.rng.choice(GLOBS), self.rng.choice(("exclusive", "exclusive", "shared"))
        wait_s = self.rng.choice((0, 0.2))
        if self.once("take", "lease", {"glob": glob, "mode": mode}, op="take", globs=[glob], mode=mode, wait_s=wait_s) == "yes":
            time.sleep(self.rng.uniform(0, 0.15))  # at work on these files
        self.book.write("back", at=time.monotonic())  # also what it may have without knowing
        while self.once("release", "lease", {}, op="release") == "lost" and not self.over():
            pass

    def words(self) -> str:
        return f"{self.name}-{self.count}-words"

    def act(self) -> None:
        while not self.over():
            self.count += 1
            self.rng.choice((self.put, self.put, self.append, self.swap, self.beside_a_person, self.mail, self.lease))()
            time.sleep(PAUSE_S)

    def read(self) -> None:
        """One of two readers of the same mailbox; reads on, for as long as something comes, when the storm is over."""
        while True:
            over = self.over()
            if self.once("read", "mail", {}, op="read") != "lost" and over and not self.found.get("mail"):
                return
            time.sleep(PAUSE_S * 5)


def main(place: str, seed: str, *others: str) -> None:
    roles = {"actor": Agent.act, "reader-1": Agent.read, "reader-2": Agent.read}
    children = []
    for role, work in roles.items():
        if (child := os.fork()) == 0:
            work(Agent(Path(place), seed, list(others), role))
            os._exit(0)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
    name = os.environ["NIGHTCREW_TASK"].rpartition("/")[2]
    Path(place, f"{name}.env.tmp").write_text(json.dumps(dict(os.environ)))
    Path(place, f"{name}.env.tmp").rename(Path(place, f"{name}.env"))  # who judges asks as this agent, which is still there
    while not Path(place, "leave").exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
