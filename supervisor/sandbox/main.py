"""The sandbox's steps as programs: `[sys.executable, "-I", "-S", "/abs/supervisor/sandbox/main.py", STEP, …]`.

enter WORDS -- COMMAND      the second executor: COMMAND in the sandbox of these orders
outside WORDS -- BWRAP      what bubblewrap lacks: deaf to polite signals, a loopback proxy, another try when a socket vanishes. In
                            BWRAP, `@post` becomes the proxy's handle, `@terminal` whether COMMAND gets the terminal of its
                            session, `@ready` a handle that says that the sandbox is built, and `@mask PATH` hides a socket, if it
                            is still there
inside POST TERMINAL READY PORT… -- COMMAND  after bubblewrap: doors ("-" for no loopback proxy), filter, process group
"""

# ruff: noqa: PTH110
# (pathlib costs several ms)

import os
import sys

if __name__ == "__main__":
    sys.path.append(__file__.rsplit("/", 3)[0])  # -I leaves it out; at the end, so that nothing here can shadow the standard library

from supervisor.sandbox import exec_step
from supervisor.sandbox.namespaces import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn


_TRIES = 20
"""Starts of bubblewrap, each of which looks anew which sockets are there."""
_HIGHEST = 1 << 20


def _enter(words: list[str]) -> "NoReturn":
    from supervisor.sandbox import namespaces

    orders, command = parse(words)
    namespaces.run(orders, command)


def _outside(words: list[str]) -> "NoReturn":
    from supervisor.sandbox import loopback_proxy

    parent = os.getppid()
    exec_step.die_with(parent)
    orders, command = parse(words)
    exec_step.ignore_stops()
    post = loopback_proxy.start(orders) if orders.ports else -1
    if post >= 0:
        os.set_inheritable(post, True)
    terminal = exec_step.foreground_terminal()
    if terminal >= 0:
        os.close(terminal)
    known = {"@post": str(post), "@terminal": "yes" if terminal >= 0 else "no"}
    for _ in range(_TRIES):
        masked = [path for path in _named(command) if os.path.exists(path)]
        status = _run(command, masked, known)
        if all(os.path.exists(path) for path in masked):
            break
    os._exit(status)


def _named(command: list[str]) -> "Iterator[str]":
    words = command[: command.index("--")]
    return (words[at + 1] for at, word in enumerate(words) if word == "@mask")


def _run(command: list[str], masked: list[str], known: dict[str, str]) -> int:
    """Return how bubblewrap ended, if it could not build the sandbox: nothing of the agent ran then. Else wait, and end as it does."""

    outside = os.getpid()
    ready, told = os.pipe()
    bubblewrap = os.fork()
    if bubblewrap == 0:
        exec_step.die_with(outside)
        os.set_inheritable(told, True)
        exec_step.execute([*_filled_in(command, masked, {**known, "@ready": str(told)})])
    os.close(told)
    is_built = os.read(ready, 1) != b""
    os.close(ready)
    if is_built:
        os.closerange(3, _HIGHEST)
    status = exec_step.exit_status(os.waitpid(bubblewrap, 0)[1])
    if is_built:
        os._exit(status)
    return status


def _filled_in(command: list[str], masked: list[str], known: dict[str, str]) -> "Iterator[str]":
    words = iter(command)
    for word in words:
        if word == "--":
            break
        if word != "@mask":
            yield word
        elif (path := next(words)) in masked:
            yield from ("--ro-bind", "/dev/null", path)
    yield "--"
    for word in words:
        yield known.get(word, word)
        if word == "--":
            break
    yield from words  # the agent's own command, whatever its words are


def _inside(words: list[str]) -> "NoReturn":

    split = words.index("--")
    post, terminal, ready, ports = words[0], words[1], int(words[2]), [int(port) for port in words[3:split]]
    os.write(ready, b"+")
    os.close(ready)
    if post != "-":
        exec_step.open_doors(ports, int(post))
    exec_step.install()
    exec_step.default_stops()
    exec_step.lead_group(exec_step.own_terminal() if terminal == "yes" else -1)
    exec_step.execute(words[split + 1 :])


if __name__ == "__main__":
    try:
        {"enter": _enter, "outside": _outside, "inside": _inside}[sys.argv[1]](sys.argv[2:])
    except (ValueError, LookupError, OSError) as error:
        os.write(2, f"nightcrew: no sandbox: {error}\n".encode("utf-8", "replace"))
        os._exit(126)
