"""An agent of `test_coordination`: a process that takes leases, writes, reads and waits in a random order, and notes what it was told.

    python -I -S coordinating_agent.py VERSION PLACE NAME SEED STEPS OTHER...

The standard library alone. A request that nobody answered is asked again, as clients do.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from pathlib import Path
from typing import Any

FILES = ("a.py", "b.py", "c.py")
NOTE = "semantic/shared.md"
"""To which every agent adds lines."""
GIVEN_UP = ("Deadlock", "Chosen", "TimedOut")


class Agent:
    def __init__(self, version: str, place: str, name: str, seed: str, *others: str) -> None:
        self.version, self.place, self.name, self.others = version, Path(place), name, others
        self.dice = random.Random(f"{seed}/{name}")
        self.held: list[str] = []

    def ask(self, verb: str, op: str, **args: Any) -> Any:
        """The answer's value, or the name of its error."""
        asked = {"version": self.version, "verb": verb, "args": {"op": op, **args}, "token": os.environ["NIGHTCREW_TOKEN"]}
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as door:
                    door.connect(os.environ["NIGHTCREW_AGENTS_SOCKET"])
                    door.sendall(json.dumps(asked).encode() + b"\n")
                    line = door.makefile().readline()
                if line:
                    said = json.loads(line)
                    if said["ok"] or said["error"]["error"] != "NotRunning":
                        return said["value"] if said["ok"] else str(said["error"]["error"])
            except OSError:
                pass
            time.sleep(0.1)

    def note(self, what: str, **facts: Any) -> None:
        """One line of what this agent saw."""
        with (self.place / f"{self.name}.log").open("a") as log:
            log.write(json.dumps({"what": what, **facts}) + "\n")

    # Steps -----------------------------------------------------------------------------------------------------------------------------

    def lease(self) -> None:
        """One more beside what it has; what cannot be had makes it give all back."""
        name = self.dice.choice([file for file in FILES if file not in self.held] or [FILES[0]])
        if name in self.held:
            return
        said = self.ask("lease", "take", globs=[name], wait_s=300)
        if isinstance(said, str):
            self.note("lease", error=said)
            self.give_back()
            return
        self.note("lease", error="")
        os.close(os.open(self.place / f"held-{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # fails when another has it too
        self.held.append(name)

    def give_back(self) -> None:
        for name in self.held:
            (self.place / f"held-{name}").unlink()
        self.held.clear()
        self.ask("lease", "release")

    def send(self) -> None:
        key = f"{self.name}-{self.dice.getrandbits(60):x}"
        said = self.ask("mail", "send", to=self.dice.choice(self.others), subject="s", text=key, key=key, type="info")
        if not isinstance(said, str):
            self.note("sent", text=key, id=said["mail"]["id"])

    def read(self) -> bool:
        said = self.ask("mail", "read")
        return self.took(said)

    def listen(self) -> None:
        """For one of the others, who may wait for what this one holds."""
        said = self.ask("mail", "wait", **{"from": self.dice.choice(self.others)}, timeout_s=1)
        if isinstance(said, str):
            self.note("listened", error=said)
            if said in GIVEN_UP:
                self.give_back()
        else:
            self.took(said)

    def took(self, said: Any) -> bool:
        if isinstance(said, str) or said["mail"] is None:
            return False
        self.note("read", id=said["mail"]["id"], claimed=said["claimed"])
        return True

    def put(self) -> None:
        """One line more in the note of all: what it was is read, and replaced only while it is that."""
        line = f"- {self.name} {self.dice.getrandbits(60):x}"
        said = self.ask("mem", "show", path=NOTE)
        version, before = ("", "") if isinstance(said, str) else (said["version"], said["text"].rstrip("\n") + "\n")
        self.note("put", line=line, **self.written(self.ask("mem", "put", path=NOTE, text=f"{before}{line}\n", if_version=version)))

    def written(self, said: Any) -> dict[str, str]:
        if isinstance(said, str):
            return {"error": said, "conflict": ""}
        if said["conflict"]:
            self.ask("mem", "rm", path=said["conflict"])  # a note has no room for many
        return {"error": "", "conflict": said["conflict"]}

    def append(self) -> None:
        line = f"{self.name} {self.dice.getrandbits(60):x}"
        said = self.ask("mem", "append", text=line)
        self.note("append", line=line, error=said if isinstance(said, str) else "")

    def live(self, steps: int) -> None:
        actions = [self.lease, self.lease, self.give_back, self.send, self.read, self.listen, self.put, self.append]
        for _ in range(steps):
            self.dice.choice(actions)()
        self.give_back()
        (self.place / f"{self.name}.over").touch()
        names = [self.name, *(other.partition("/")[2] or other for other in self.others)]
        while not all((self.place / f"{name}.over").exists() for name in names):
            self.read()
            time.sleep(0.1)
        while self.read():
            pass


if __name__ == "__main__":
    VERSION, PLACE, NAME, SEED, STEPS, *OTHERS = sys.argv[1:]
    Agent(VERSION, PLACE, NAME, SEED, *OTHERS).live(int(STEPS))
