"""The trusted process in an agent's pane: it starts the agent, holds it to its limits, and writes down how it ended.

Run it as `[sys.executable, "-I", "-S", "/abs/agents/runner/main.py", ATTEMPT_DIR]`; a zygote forks and calls `main`. What to run
stands in `launch.spec` there; the answers are `started.json` and `exit.json` (formats: `supervisor.kernel.records`). Steps:

    claim the epoch (a second runner of it exits 75) -> fork, limits, exec -> wait, copy output -> stop the tree -> record -> hint

A crew of 200 has 200 runners, and each start is a part of what a person waits for. So the runner imports only C modules and its own
few files (`signal` costs 5 ms, `json` 10, `dataclasses` 20, about 1 MB each), and this script is little more than a door: the code
behind it is loaded from `.pyc` files, while a script itself is compiled at every start (measured: 4 ms for 400 lines).

Exit status: the agent's own, 128+n when signal n ended it, 126 or 127 when it could not start; 64 usage, 65 bad spec, 66 no
spec, 74 the records cannot be written, 75 somebody else runs this epoch.
"""

import os
import sys
import time

if __name__ == "__main__":
    sys.path.append(__file__.rsplit("/", 3)[0])  # -I leaves it out; at the end, so that nothing here can shadow the standard library

from agents.runner.loop import Attempt, ExitRecord, SpecError, hint, read_spec, write_started
from supervisor.host.procfs import boot_id, look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agents.runner.loop import Spec


def main(directory: str, forked: bool = False) -> int:
    """Run one attempt to its end in this process, which must have no other thread; returns the status to exit with.

    `forked` says that this is a zygote's fork, where the spec's `warm` means something. The working directory becomes `directory`, so a
    runner never sits inside a worktree that somebody wants to remove.
    """
    try:
        os.chdir(directory)
        spec = read_spec()
    except OSError as error:
        return _refuse(66, f"no launch.spec in {directory}: {error.strerror}")
    except SpecError as error:
        return _refuse(65, f"launch.spec in {directory} is not one: {error}")
    spec.warm = spec.warm and forked
    try:
        record = ExitRecord()
        attempt = Attempt(spec)
        if not _claim(spec):
            record.discard()
            return _refuse(75, f"{spec.task}:{spec.epoch} has a runner already")
    except OSError as error:
        return _refuse(74, f"cannot write in {directory}: {error.strerror}; nothing was started")
    if spec.hold:
        hint(spec)  # whoever lets it begin need not wait for a tick to learn that it is up
    status, shape = attempt.run()
    try:
        record.write(shape)
    except OSError as error:
        return _refuse(74, f"cannot write exit.json in {directory}: {error.strerror}; the agent ended with {status}")
    hint(spec)
    return status


def _claim(spec: "Spec") -> bool:
    me = look(os.getpid())
    shape: dict[str, object] = {
        "schema": 1,
        "task": spec.task,
        "epoch": spec.epoch,
        "pid": os.getpid(),
        "ticks": me.ticks if me else 0,
        "boot_id": boot_id(),
        "at": time.time(),
    }
    return write_started(shape)


def _refuse(status: int, sentence: str) -> int:
    os.write(2, f"nightcrew: {sentence}\n".encode("utf-8", "replace"))
    return status


if __name__ == "__main__":
    if len(sys.argv) != 2:
        os._exit(_refuse(64, "usage: runner.py ATTEMPT_DIR"))
    os._exit(main(sys.argv[1]))  # at once: everything that matters is on disk, and tearing Python down costs 2 ms
