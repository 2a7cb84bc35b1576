"""Reads what `strace -f -y` wrote: who was outside a sandbox, when each agent began, and which calls took a path that an agent can write.

A process is inside a sandbox when it, or whoever it descends from, was started in new process numbers: every sandbox of ours
has them, and nothing else of ours has. All others descend from the first process without such a step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_LINE = re.compile(r"(\d+) +(?:(\w+)\(|<\.\.\. (\w+) resumed>)(.*)")
_FORKS = ("clone", "clone3", "fork", "vfork")
_BY_HANDLE = {
    "openat": ((0, 1),), "openat2": ((0, 1),), "unlinkat": ((0, 1),), "mkdirat": ((0, 1),), "mknodat": ((0, 1),), "fchmodat": ((0, 1),),
    "fchownat": ((0, 1),), "utimensat": ((0, 1),), "execveat": ((0, 1),), "renameat": ((0, 1), (2, 3)), "renameat2": ((0, 1), (2, 3)),
    "linkat": ((0, 1), (2, 3)), "symlinkat": ((1, 2),), "open_tree": ((0, 1),), "name_to_handle_at": ((0, 1),), "fanotify_mark": ((3, 4),),
}  # fmt: skip
_BY_PATH = {
    "open": (0,), "creat": (0,), "unlink": (0,), "rmdir": (0,), "mkdir": (0,), "rename": (0, 1), "link": (0, 1), "symlink": (1,),
    "chmod": (0,), "chown": (0,), "lchown": (0,), "chdir": (0,), "chroot": (0,), "execve": (0,), "truncate": (0,), "mknod": (0,),
    "mount": (0, 1), "umount2": (0,), "pivot_root": (0, 1), "utime": (0,), "utimes": (0,), "setxattr": (0,), "removexattr": (0,),
    "inotify_add_watch": (1,),
}  # fmt: skip
"""Every call with a path that opens or changes something. What only tells (stat, access, readlink, statfs, getxattr) is left out: it
follows links to no effect, and does not wait."""
OPTIONS = ("-f", "-y", "-qq", "--seccomp-bpf", "-s", "4096", "-e", "trace=" + ",".join(
    f"?{name}" for name in (*_BY_HANDLE, *_BY_PATH, *_FORKS, "unshare", "fchdir")
))  # fmt: skip
"""Of strace. A call that this machine does not have is no error."""
_HANDLE = re.compile(r"(?:AT_FDCWD|(\d+))<(.*?)>(?:\(deleted\))?$")
_STEPS = re.compile(r"^/proc/(?:self|\d+)/(?:fd/(\d+)|cwd|root)(?=/|$)")


@dataclass(frozen=True, slots=True)
class Call:
    """One system call, with its line's number where it began."""

    at: int
    pid: int
    name: str
    args: tuple[str, ...]
    result: str


@dataclass(frozen=True, slots=True)
class Touch:
    """A call of a process outside that took a path not by a handle."""

    at: int
    program: str
    call: str
    path: str


@dataclass
class _Process:
    parent: int
    cwd: str
    program: str = "?"
    handles: dict[int, str] = field(default_factory=dict)
    makes_sandboxes: bool = False
    """It has asked for new process numbers: whoever it starts is inside."""


class Trace:
    """One file of strace's, whose first process began in `cwd`."""

    def __init__(self, file: Path, cwd: Path) -> None:
        self._calls = list(_calls(file))
        self._first = self._calls[0].pid
        self._cwd = str(cwd)
        self.entries: list[tuple[int, int]] = []
        """Of each sandbox: the line at which it was entered, and the pid outside that did it."""
        self._been: dict[int, set[str]] = {}
        """The directories that a process worked in: a runner's is its attempt's."""
        self._outside: dict[int, _Process] = {self._first: _Process(0, self._cwd)}
        self.touches = list(self._walk())

    def began(self, attempt: Path) -> int | None:
        """The line at which the agent of that attempt got its sandbox; nothing of it ran before. None when it never did."""
        found = [at for at, pid in self.entries if any(str(attempt) in self._been.get(who, ()) for who in self._above(pid))]
        return min(found, default=None)

    def _above(self, pid: int) -> Iterator[int]:
        while pid in self._outside:
            yield pid
            pid = self._outside[pid].parent

    def _walk(self) -> Iterator[Touch]:
        for call in self._calls:
            process = self._outside.get(call.pid)
            if process is None:
                continue
            yield from self._paths(call, process)
            if call.name in _FORKS:
                self._bear(call, process)
            else:
                self._follow(call, process)

    def _bear(self, call: Call, parent: _Process) -> None:
        """Whoever is inside a sandbox is not among those outside, and neither is whom it starts: its numbers say nothing here."""
        if _has(call, "CLONE_NEWPID") or parent.makes_sandboxes:
            self.entries.append((call.at, call.pid))
        elif (number := call.result.split()[0]).isdigit():
            thread = _has(call, "CLONE_THREAD")
            fresh = _Process(call.pid, parent.cwd, parent.program, dict(parent.handles))
            self._outside[int(number)] = parent if thread else fresh

    def _follow(self, call: Call, process: _Process) -> None:
        """What the next calls stand upon."""
        if call.name == "unshare" and _has(call, "CLONE_NEWPID") and call.result.startswith("0"):
            process.makes_sandboxes = True
        elif call.name == "execve" and call.result.startswith("0"):
            process.program = _program(call)
        elif call.name in ("chdir", "fchdir") and call.result.startswith("0"):
            found = _HANDLE.match(call.args[0])
            process.cwd = found.group(2) if found else self._resolved(_text(call.args[0]), process.cwd, process)
            self._been.setdefault(call.pid, set()).add(process.cwd)
        elif found := re.match(r"(\d+)<(.*)>", call.result):
            process.handles[int(found.group(1))] = found.group(2)

    def _paths(self, call: Call, process: _Process) -> Iterator[Touch]:
        for where, what in _BY_HANDLE.get(call.name, ()):
            if len(call.args) > what and call.args[what].startswith('"'):
                here, text = _HANDLE.match(call.args[where]), _text(call.args[what])
                base = here.group(2) if here else process.cwd
                if not (here and here.group(1) and _is_by_handle(call, text)):
                    yield Touch(call.at, process.program, call.name, self._resolved(text, base, process))
        for at in _BY_PATH.get(call.name, ()):
            if len(call.args) > at and call.args[at].startswith('"'):
                yield Touch(call.at, process.program, call.name, self._resolved(_text(call.args[at]), process.cwd, process))

    def _resolved(self, text: str, base: str, process: _Process) -> str:
        if found := _STEPS.match(text):
            rest = text[found.end() :]
            top = process.handles.get(int(found.group(1)), "?") if found.group(1) else ""
            return os.path.normpath(f"{top}{rest}") if rest else text
        return os.path.normpath(os.path.join(base, text))


def _calls(file: Path) -> Iterator[Call]:
    """In the order in which they began."""
    begun: dict[int, tuple[int, str, str]] = {}
    whole: list[Call] = []
    with file.open(encoding="utf-8", errors="surrogateescape") as lines:
        for at, line in enumerate(lines):
            found = _LINE.match(line)
            if found is None:
                continue
            pid, name, resumed, rest = int(found.group(1)), found.group(2), found.group(3), found.group(4)
            if name and rest.endswith("<unfinished ...>"):
                begun[pid] = (at, name, rest.removesuffix("<unfinished ...>"))
                continue
            began, head = at, ""
            if resumed:
                began, name, head = begun.pop(pid, (at, resumed, ""))
            text, _, result = (head + rest).rpartition(" = ")
            whole.append(Call(began, pid, name, tuple(_split(text.rstrip().removesuffix(")"))), result))
    whole += [Call(at, pid, name, tuple(_split(head)), "?") for pid, (at, name, head) in begun.items()]  # it never returned
    return iter(sorted(whole, key=lambda call: call.at))


def _split(text: str) -> Iterator[str]:
    """At commas outside quotes and brackets."""
    depth, start, at, quoted = 0, 0, 0, False
    while at < len(text):
        char = text[at]
        if char == "\\" and quoted:
            at += 1
        elif char == '"':
            quoted = not quoted
        elif not quoted and char in "([{<":
            depth += 1
        elif not quoted and char in ")]}>":
            depth -= 1
        elif not quoted and char == "," and depth <= 0:
            yield text[start:at].strip()
            start = at + 1
        at += 1
    yield text[start:].strip()


def _text(arg: str) -> str:
    body = arg[1 : arg.rindex('"')]
    return body.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in body else body


def _has(call: Call, flag: str) -> bool:
    return any(flag in arg for arg in call.args)


def _program(call: Call) -> str:
    words = [_text(word) for word in _split(call.args[1].strip("[]")) if word.startswith('"')]
    scripts = [word for word in words[1:] if not word.startswith("-")]
    name = os.path.basename(_text(call.args[0]))
    return f"{os.path.basename(scripts[0])} ({name})" if name.startswith("python") and scripts else " ".join([name, *_verb(name, words)])


def _verb(program: str, words: list[str]) -> list[str]:
    """Of git: what it does, after its options."""
    if program != "git":
        return []
    rest = iter(words[1:])
    for word in rest:
        if word in ("-C", "-c"):
            next(rest, "")
        elif not word.startswith("-"):
            return [word]
    return []


def _is_by_handle(call: Call, name: str) -> bool:
    """Whether a call relative to a handle of a directory can lead nowhere else."""
    if call.name == "openat2":
        return _has(call, "RESOLVE_BENEATH") and _has(call, "RESOLVE_NO_SYMLINKS")
    if "/" in name:
        return False
    match call.name:
        case "openat":
            return _has(call, "O_NOFOLLOW") or _has(call, "O_EXCL") or name in (".", "..")
        case "linkat":
            return not _has(call, "AT_SYMLINK_FOLLOW")
        case "fchmodat" | "fchownat" | "utimensat" | "name_to_handle_at":
            return _has(call, "AT_SYMLINK_NOFOLLOW") or not name
        case "execveat" | "open_tree" | "fanotify_mark":
            return not name
    return True
