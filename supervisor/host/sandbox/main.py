"""The sandbox's steps as programs: `[sys.executable, "-I", "-S", "/abs/supervisor/host/sandbox/main.py", STEP, …]`.

enter WORDS -- COMMAND      the second executor: COMMAND in the sandbox of these orders
outside WORDS -- BWRAP      what bubblewrap lacks, before it starts: deaf to polite signals, a loopback proxy; in BWRAP, `@post` becomes its
                            handle, `@terminal` whether COMMAND gets the terminal of its session, and `@mask PATH` hides a socket, if
                            it is still there
inside POST TERMINAL PORT… -- COMMAND  and after it: doors ("-" for no loopback proxy), filter, process group
"""

# ruff: noqa: PTH110
# (pathlib costs several ms)

import os
import sys

if __name__ == "__main__":
    sys.path.append(__file__.rsplit("/", 4)[0])  # -I leaves it out; at the end, so that nothing here can shadow the standard library

from supervisor.host.sandbox import exec_step
from supervisor.host.sandbox.policy_arguments import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn


def _enter(words: list[str]) -> "NoReturn":
    from supervisor.host.sandbox import namespaces

    orders, command = parse(words)
    namespaces.run(orders, command)


def _outside(words: list[str]) -> "NoReturn":
    from supervisor.host.sandbox import loopback_proxy, syscalls

    parent = os.getppid()
    syscalls.die_with(parent)
    orders, command = parse(words)
    exec_step.ignore_stops()
    post = loopback_proxy.start(orders) if orders.ports else -1
    if post >= 0:
        os.set_inheritable(post, True)
    terminal = exec_step.foreground_terminal()
    if terminal >= 0:
        os.close(terminal)
    exec_step.execute([*_filled_in(command, post, "yes" if terminal >= 0 else "no")])


def _filled_in(command: list[str], post: int, terminal: str) -> "Iterator[str]":
    words = iter(command)
    for word in words:
        if word == "--":
            break
        if word != "@mask":
            yield word
        elif os.path.exists(path := next(words)):
            yield from ("--ro-bind", "/dev/null", path)
    yield "--"
    known = {"@post": str(post), "@terminal": terminal}
    for word in words:
        yield known.get(word, word)
        if word == "--":
            break
    yield from words  # the agent's own command, whatever its words are


def _inside(words: list[str]) -> "NoReturn":
    from supervisor.host.sandbox import seccomp_filter as calls

    split = words.index("--")
    post, terminal, ports = words[0], words[1], [int(port) for port in words[2:split]]
    if post != "-":
        exec_step.open_doors(ports, int(post))
    calls.install()
    exec_step.default_stops()
    exec_step.lead_group(exec_step.own_terminal() if terminal == "yes" else -1)
    exec_step.execute(words[split + 1 :])


if __name__ == "__main__":
    try:
        {"enter": _enter, "outside": _outside, "inside": _inside}[sys.argv[1]](sys.argv[2:])
    except (ValueError, LookupError, OSError) as error:
        os.write(2, f"nightcrew: no sandbox: {error}\n".encode("utf-8", "replace"))
        os._exit(126)
