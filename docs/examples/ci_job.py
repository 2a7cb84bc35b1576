"""Has an agent of the crew work on what a CI job found, and fails with the job when it did not help.

    python ci_job.py "make test" "make test fails; mend it. Do not change the tests."

From the environment: NIGHTCREW_URL, NIGHTCREW_API_TOKEN, and CI_JOB_ID, by which the same job that is run again is the same task.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nightcrew.client import Client


def main() -> int:
    gate, what = sys.argv[1:3]
    kind = os.environ.get("NIGHTCREW_KIND", "claude")
    work = {"command": what} if kind == "shell" else {"prompt": what}
    with Client(os.environ["NIGHTCREW_URL"], os.environ["NIGHTCREW_API_TOKEN"]) as crew:
        task = crew.submit(id="mend", kind=kind, gate=gate, timeout="30m", retries=1, key=f"mend {os.environ['CI_JOB_ID']}", **work)
        print(f"handed over: {task.id}", flush=True)
        for text in crew.log(task.id):
            print(text, end="", flush=True)
        task = crew.wait(task.id, timeout_s=3600)
        result = crew.result(task.id)
        print(f"{task.state}: {task.reason}\n{result.stat}")
        if result.patch:
            Path("mended.patch").write_text(result.patch)
    return 0 if task.is_done else 1


if __name__ == "__main__":
    sys.exit(main())
