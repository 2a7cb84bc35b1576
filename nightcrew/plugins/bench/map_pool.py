"""The other side of the benchmark: `python pool.py MODULE:FUNCTION PROCESSES OUT < NAMES`, in the directory of the files."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import sys
from pathlib import Path


def main(call: str, processes: str, out: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    module, _, name = call.partition(":")
    function = getattr(importlib.import_module(module), name)
    names = sys.stdin.read().splitlines()
    with multiprocessing.get_context("fork").Pool(int(processes)) as pool, Path(out).open("w") as file:
        for given, result in zip(names, pool.imap(function, names, chunksize=8), strict=True):
            file.write(json.dumps({"item": given, "result": result}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
