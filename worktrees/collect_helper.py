"""The process that works where a confined agent worked: in a sandbox, on its worktree and its own repository.

    python -I -S collect_helper.py                one request on stdin, see `securing`
    python -I -S collect_helper.py serve HANDLE   fork one for each datagram, see `helper_process`

It answers 10 digits, so many bytes of JSON, and then, when there is something to hand over, a pack. Everything that it reads was written
by an agent; so it has no network, no way to the person's repository but to read its objects, and limits. It does what is done outside for
an agent without a sandbox, with the same code: in here that agent's repository is an ordinary one.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import resource
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.append(__file__.rsplit("/", 2)[0])  # -I leaves it out; at the end, so that nothing here can shadow the standard library

from supervisor.host import files
from supervisor.host.untrusted_fs import Folder, entries, folder
from supervisor.kernel.errors import NightcrewError, ToolFailed
from supervisor.sandbox import namespaces
from worktrees import changes, collect_work, commit_work, repository
from worktrees.environments import Alone, Environment, open_env
from worktrees.git import ENVIRONMENT, IDENTITY, Git, Opened, wrap_os_errors
from worktrees.private_repository import alternates
from worktrees.repository import Repository

# Repair
# ------
# Repairs an attempt's own repository, in its sandbox, after its agent has ended and before its work is collected.
#
# What would make git wait is set aside (`blocking_files`). What git needs before it takes a directory for a repository is written
# anew where it cannot be used: the agent could write anything there. Each is a line for the result.


_SMALL_MAX = 4096
_INCLUDES = ("include.", "includeif.")
_HEAD = re.compile(rb"(ref: refs/[^\n]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")


def repair(env: Environment) -> list[str]:
    """Raises ToolFailed, ToolHung, HostError, DiskFull."""
    top = env.repo.common_dir
    with wrap_os_errors(top):
        _open_up(top)
        commit_work.unlock(top)
        notes = changes.disarm_repository(env)
        with folder(top) as here:
            notes += [*_directory(here, "objects"), *_directory(here, "refs")]
            notes += _aside(here, "commondir", "it led to another repository") if here.look("commondir") else []
            notes += _file(here, "HEAD", f"ref: {env.branch_ref}\n".encode(), _HEAD)
        with folder(top, "objects") as objects:
            notes += _directory(objects, "info")
        with folder(top, "objects/info") as info:
            wanted = alternates(top)
            notes += _file(info, "alternates", wanted, re.compile(re.escape(wanted)))
    return notes + _configuration(env)


def _open_up(top: Path) -> None:
    """Let the owner enter and change every directory of the repository: the person's stand read-only and are not touched."""
    top.chmod(stat.S_IMODE(top.stat().st_mode) | stat.S_IRWXU)
    for _ in entries(top, leave_out=changes.OF_THE_PERSON, open_up=True):
        pass


def _directory(here: Folder, name: str) -> list[str]:
    seen = here.look(name)
    if seen is not None and stat.S_ISDIR(seen.st_mode):
        return []
    notes = _aside(here, name, "it was no directory") if seen is not None else []
    os.mkdir(name, dir_fd=here.handle)
    return notes


def _file(here: Folder, name: str, text: bytes, usable: re.Pattern[bytes]) -> list[str]:
    if usable.fullmatch(here.read(name, _SMALL_MAX, linked=True) or b""):
        return []
    notes = _aside(here, name, "it could not be used") if here.look(name) is not None else [f".git/{name} was gone"]
    here.replace(name, text)
    return notes


def _aside(here: Folder, name: str, why: str) -> list[str]:
    return [f".git/{name}: {why}: it is now {here.set_aside(name)}"]


def _configuration(env: Environment) -> list[str]:
    """The agent's, or one that says only what kind of repository it is. One that pulls in files counts as unusable: what git reads then
    depends on who reads."""
    try:
        env.repo.run("rev-parse", "--git-dir")
        fit = not any(name.startswith(_INCLUDES) for name in env.repo.git.configured(env.place))
    except ToolFailed:
        fit = False
    if fit:
        return []
    return [*_anew(env.admin_dir, "config.worktree", None), *_anew(env.repo.common_dir, "config", plain_configuration(len(env.base)))]


def _anew(top: Path, name: str, text: bytes | None) -> list[str]:
    notes = list[str]()
    with wrap_os_errors(top), contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(top) as here:
        notes += _aside(here, name, "git could not use it") if here.look(name) is not None else []
        if text is not None:
            here.replace(name, text)
    return notes


def plain_configuration(oid_size: int) -> bytes:
    """Of a repository whose objects have names of so many hex digits."""
    if oid_size == 40:
        return b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
    return b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n"


# Collect helper
# --------------


MEMORY_MAX = 2 * 2**30
"""Bytes of private memory for each process here."""
ADDRESS_MAX = 8 * 2**30
"""Bytes of address space for each: git maps whole files, and an agent can make one as long as it likes."""
_TMP = "/tmp"
_SHALLOW_MAX = 2**20
_OWN_MAX = 10
"""Commits of ours in a row: one for each try."""

_SETTINGS = {
    "core.commitGraph": "false",  # an agent could have written one that hides its commits, and so with the next two
    "core.multiPackIndex": "false",
    "pack.useBitmaps": "false",
    "core.fsync": "none",  # what counts is written once more outside; `repair` removes what a power cut left empty here
    "core.packedGitWindowSize": "32m",
    "core.protectHFS": "true",  # what git refuses outside must not be stored here
    "core.protectNTFS": "true",
    "core.packedGitLimit": "512m",
    "pack.windowMemory": "256m",
    "pack.threads": "1",
}


class PlainGit(Git):
    """git as it is in here: nothing is looked up, and the end of the first process ends every other."""

    def __init__(self, state: Path, personal: str) -> None:
        self._state = state
        self._held = ()
        (state / "locks").mkdir()
        self._leash = ()
        self._prepare(_SETTINGS)
        self.personal = personal
        self._personal = self._write_personal()

    def _open(self, command: list[str], env: dict[str, str], stdin: int | None, handles: tuple[int, ...]) -> Opened:
        full = {**os.environ, **env}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=full,
            start_new_session=True,
            pass_fds=handles,
        )
        return process, None


def secure(env: Environment, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Make everything reachable from the refs of the attempt's own repository; see `commit_work.secure_here`, or with `apart`, a commit,
    `commit_work.set_apart`."""
    notes = repair(env)
    _adopt(env, asked["known"])
    message = asked["message"].encode()
    if tip := asked.get("apart"):
        stood = _standing(env, asked["stands"], _refs(env).get(env.branch_ref))  # before the branch is put back
        done = commit_work.set_apart(env, message, tip)
        return {"secured": {**asdict(done), "notes": [*notes, *done.notes]}, "refs": _refs(env), **stood}
    done = commit_work.secure_here(env, message, **{name: asked[name] for name in ("onto_branch", "always", "most")})
    found = _refs(env)
    return {
        "secured": {**asdict(done), "notes": [*notes, *done.notes]},
        "refs": found,
        **_standing(env, asked["stands"], found.get(env.branch_ref)),
    }


def publish(env: Environment, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Where the work branch stands now, while its agent may be at work."""
    tip = env.repo.commit(env.branch_ref)
    found = {env.branch_ref: tip} if tip else {}
    standing = _standing(env, asked["stands"], found.get(env.branch_ref))
    if found and not standing["is_forward"]:
        found[env.tips_ref] = commit_work.joined_tips(env, asked["stands"], asked["known"].get(env.tips_ref))
    return {"refs": found, **standing}


def commits(env: Environment, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Where the work branch stands without the commits that we made of leftover files, which were refused."""
    tip = env.branch_ref
    for _ in range(_OWN_MAX):
        said = env.repo.run("log", "-1", "--format=%ce", "--no-show-signature", tip, accept=(0, 128))
        if said.code != 0 or said.text != IDENTITY["GIT_COMMITTER_EMAIL"]:
            break
        tip += "^"
    own = env.repo.commit(tip)
    found = {env.branch_ref: own, env.rescue_ref: own} if own else {}
    return {"refs": found, **_standing(env, asked["stands"], found.get(env.branch_ref))}


def look(env: Environment, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What the worktree holds that would go with it; see `inspection.look`."""
    repair(env)
    lower, *extras = asked["origin"] or [""]
    with open_env(env) as seen:
        return asdict(collect_work.look_for_losses(seen, collect_work.Origin(Path(lower), frozenset(extras)) if lower else None))


VERBS: Mapping[str, Callable[[Environment, Mapping[str, Any]], dict[str, Any]]] = {
    "secure": secure, "publish": publish, "commits": commits, "look": look,
}  # fmt: skip


def _standing(env: Environment, ours: str | None, theirs: str | None) -> dict[str, bool]:
    """Whether the branch was ever at `ours`, where it is outside; and whether it only went on from there."""
    if ours is None or theirs is None or ours == theirs:
        return {"was_there": ours == theirs, "is_forward": True}
    is_forward = env.repo.has(theirs, ours)
    return {"was_there": is_forward or ours == env.base or ours in set(commit_work.remembered(env, [])), "is_forward": is_forward}


def _refs(env: Environment) -> dict[str, str]:
    ours = (env.branch_ref, env.rescue_ref, env.tips_ref)
    answer = env.repo.run("for-each-ref", "--format=%(refname) %(objectname)", *ours)
    return {name: oid for name, _, oid in (line.partition(" ") for line in answer.text.splitlines()) if name in ours}


def _adopt(env: Environment, known: Mapping[str, str]) -> None:
    """Let the rescue refs of the attempt's own repository stand where those of the person's do: so what is made here continues them."""
    moves = "".join(f"update {ref} {oid}\n" for ref, oid in known.items() if not ref.startswith(f"{repository.HEADS}/"))
    if moves:
        env.repo.run("update-ref", "--no-deref", "--stdin", stdin=moves.encode())


def _hand_over(env: Environment, found: Mapping[str, str], known: Mapping[str, str], bare: Path, *, everything: bool) -> None:
    """Write a pack of what the refs reach and `known` does not; nothing when there is no such ref. Without `everything` it lacks what the
    person's objects hold, though a git of the person's may collect that at any moment.

    git reads refs to order a pack; so it is shown a repository without any, where nothing can make it wait.
    """
    new = [oid for ref, oid in found.items() if known.get(ref) != oid and oid != env.base]
    if not new:
        return
    asked = "\n".join([*new, *(f"^{oid}" for oid in {env.base, *known.values()}), ""])
    argv = ("pack-objects", "--revs", "--thin", *(() if everything else ("--local",)), "--stdout", "--delta-base-offset", "-q")
    where = {"GIT_DIR": str(bare), "GIT_OBJECT_DIRECTORY": str(env.repo.common_dir / "objects")}
    full = {**os.environ, **ENVIRONMENT, **env.repo.git.environment(env.repo.store), **where}
    subprocess.run(["git", *argv], input=asked.encode(), stdout=sys.stdout.fileno(), env=full, check=False)  # a pack cut short says enough


def _bare(env: Environment, scratch: Path) -> Path:
    """A repository with no refs; where history was cut off, it ends there as well."""
    top = scratch / "bare"
    (top / "refs").mkdir(parents=True)
    (top / "HEAD").write_text("ref: refs/heads/none\n")
    (top / "config").write_bytes(plain_configuration(len(env.base)))
    with folder(env.repo.common_dir) as here:
        if (cut := here.read("shallow", _SHALLOW_MAX, linked=True)) is not None:
            (top / "shallow").write_bytes(cut)
    return top


def _environment(asked: Mapping[str, Any], scratch: Path) -> Environment:
    common = Path(asked["common"])
    git = PlainGit(scratch, asked["personal"])
    repo = Repository(git, Path(asked["root"]), common, common, asked["project"], asked["base"], None)
    path, admin = Path(asked["path"]), common / "worktrees" / asked["admin"]
    return Environment(repo, asked["task"], asked["epoch"], path, admin, asked["branch"], asked["base"], alone=Alone(asked["packed"]))


def _answer(shape: Mapping[str, Any]) -> None:
    text = json.dumps(shape).encode()
    sys.stdout.buffer.write(b"%010d" % len(text) + text)
    sys.stdout.buffer.flush()


def main() -> None:
    """Do what is asked, and say what came of it."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_MAX, ADDRESS_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asked = json.loads(sys.stdin.buffer.readline())
    with contextlib.ExitStack() as stack:
        try:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nightcrew-", dir=_TMP)))
            env = _environment(asked, scratch)
            done = VERBS[asked["verb"]](env, asked)
            bare = _bare(env, scratch)
        except NightcrewError as error:
            _answer({"failed": error.to_wire()})
        except (OSError, MemoryError, RecursionError, ValueError) as error:  # what an agent's files can cause; all else is a fault of ours
            _answer({"failed": _explained(error, Path(asked["path"])).to_wire()})
        else:
            _answer({"done": done})
            _hand_over(env, done.get("refs", {}), asked["known"], bare, everything=asked.get("all") is True)


def _explained(error: Exception, worktree: Path) -> NightcrewError:
    what, why = "the work could not be secured", f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and files.is_no_space(error):
        return files.disk_full(what, worktree, why)
    return ToolFailed(what, why=why)


def serve(handle: int) -> None:
    """Fork a helper for each datagram: the words of its sandbox's orders, with its three handles. Answers with its pid and a pidfd."""
    line = socket.socket(fileno=handle)
    gc.freeze()
    while True:
        words, handles, _, _ = socket.recv_fds(line, 2**18, 3)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not words:
            return
        child = os.fork()
        if not child:
            _become(words, handles)
        pidfd = os.pidfd_open(child)  # it is not reaped before the next round
        socket.send_fds(line, [b"%d" % child], [pidfd])
        for mine in (*handles, pidfd):
            os.close(mine)


def _become(words: bytes, handles: Sequence[int]) -> NoReturn:
    """Enter the sandbox and be the helper; never returns to the caller's frames."""
    try:
        for number, handle in enumerate(handles):
            os.dup2(handle, number)
        os.closerange(3, 2**16)
        namespaces.enter(namespaces.parse([os.fsdecode(word) for word in words.split(b"\0")])[0])
        main()
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - a forked child: nothing may unwind into the server's loop
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace")[:4000])
        os._exit(1)


if __name__ == "__main__":
    serve(int(sys.argv[2])) if sys.argv[1:2] == ["serve"] else main()
