"""The only door to tmux: sessions of agents on a private tmux server."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from agents import tmux_control
from agents.tmux_control import READY, Block, ClientLost, ControlClient, PaneView, unpack_tags
from supervisor.host import files
from supervisor.kernel.errors import UNSEEN, NotFound, ToolFailed
from supervisor.kernel.format import duration

# The name of a session
# ----------------------


def session_name(task: str, epoch: int) -> str:
    """Return the name of the tmux session of an attempt: of `[a-z0-9_-]`, at most 48 characters, derived so that any restart finds the same
    name."""
    run, _, slug = task.partition("/")
    return f"{run}_{slug}_{epoch}"


# Attaching
# ---------
# The command by which a person looks at a session.


def attach_argv(binary: str, socket: Path, session_id: str, environ: Mapping[str, str]) -> list[str]:
    """Inside a pane of our own server the terminal there switches to the session. Anywhere else the session opens in the caller's
    terminal, also when that is a pane of the user's own tmux: the two nest, detaching leads back to the pane, and the inner
    one gets the prefix key pressed twice (`C-b C-b d`).
    """
    tmux = [binary, "-u", "-S", os.fspath(socket)]
    named = environ.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]
    if _same_socket(named, socket):
        return [*tmux, "switch-client", "-t", session_id]
    known = terminal_name(environ.get("TERM", ""))
    # With TMUX set our server refuses a terminal whose number one of its ended panes had before ("nested with care").
    return [
        "env",
        "-u",
        "TMUX",
        *([f"TERM={known}"] if known != environ.get("TERM", "") else []),
        *tmux,
        "attach-session",
        "-t",
        session_id,
    ]


def terminal_name(term: str) -> str:
    """Return `term` if this machine's terminfo knows it as a terminal that tmux can draw on, else the nearest name that it knows: terminals
    such as Ghostty and kitty name themselves after an entry that only they bring. All of them understand what xterm does."""
    if term not in _NO_SCREEN and _has_entry(term):
        return term
    return next((name for name in _COMMON if _has_entry(name)), term)


def _has_entry(term: str) -> bool:
    """Return whether a compiled entry lies where ncurses looks for it."""
    if not term or "/" in term or term.startswith("."):
        return False
    folders = [os.environ.get("TERMINFO", ""), str(Path.home() / ".terminfo"), *os.environ.get("TERMINFO_DIRS", "").split(":"), *_FOLDERS]
    places = (term[0], f"{ord(term[0]):x}")
    return any(Path(folder, place, term).is_file() for folder in folders if folder for place in places)


_COMMON = ("xterm-256color", "xterm", "screen-256color", "screen", "vt220", "vt100")
_NO_SCREEN = ("dumb", "unknown", "emacs")
_FOLDERS = ("/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo", "/usr/local/share/terminfo")


def _same_socket(named: str, ours: Path) -> bool:
    """By device and inode: the path in TMUX may name the same socket in another way."""
    try:
        return bool(named) and Path(named).samefile(ours)
    except OSError:
        return False


# Quoting
# -------
# Text on its way into tmux: one function for each place where tmux would read it as more than text.
#
# quote          tmux's command parser (quotes, `;`, `$NAME`, `~`, escapes) escape_format  arguments that tmux expands (names,
# `-c`): `#{…}`, `#(…)` which runs a shell, `#S` said_text      text that tmux shows in its status line, where it expands it and
# draws its styles plain_text     text typed into a program: nothing that drives a terminal or ends a bracketed paste


_SPECIAL = re.compile('[\x01-\x1f\x7f"\\\\$~\udc80-\udcff]')
_MARKS = re.compile(r"#(?=[\[{(,}])")
_HASHES = re.compile(r"#+(?![#\[])")
_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROLS = re.compile(f"[{_STEERING}{''.join(sorted(UNSEEN))}]")


def quote(text: str) -> str:
    """One word of tmux's command language that tmux reads back as exactly `text`, on one line.

    Bytes of a path that are no UTF-8 are kept: Python writes them as U+DC80 to U+DCFF (`surrogateescape`). They must not
    reach the parser as they are, which takes the byte 255 for the end of its input and drops the commands after it.
    Raises ValueError for NUL, which no tmux argument can hold.
    """
    if "\0" in text:
        raise ValueError("tmux arguments cannot hold a NUL character")
    return '"' + _SPECIAL.sub(lambda found: f"\\{ord(found[0]) & 0xFF:03o}", text) + '"'


def command_line(*commands: tuple[str, ...]) -> str:
    """Commands that tmux runs in order, as one line; the first that fails ends the line."""
    return " ; ".join(" ".join(quote(word) for word in command) for command in commands)


def escape_format(text: str) -> str:
    """`text` so that tmux's format expansion gives it back unchanged and runs nothing.

    A run of `#` before `[` is a style mark: tmux copies it as it is, so it must not be doubled.
    """
    return _HASHES.sub(lambda run: run[0] * 2, text)


def said_text(text: str) -> str:
    """`text` so that `display-message` shows it and no more: what could begin a format or a style is broken up, so that nothing depends on
    how often tmux expands it, and `%` is no time."""
    return escape_format(_MARKS.sub("# ", plain_text(text).replace("\n", " "))).replace("%", "%%")


def typed_text(text: str) -> str:
    """`text` as it is typed into a program: `plain_text`, without line ends at the end."""
    return plain_text(text).rstrip("\n")


def plain_text(text: str) -> str:
    """`text` with line ends as `\\n` and without control characters (tab stays), direction overrides, lone surrogates and
    characters that nobody sees.

    The paste of a text that holds `ESC [201~` would end there, and the rest would be typed as keys.
    """
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


# Tmux server
# -----------
# The only door to tmux: sessions of agents on a private server.
#
# Every call goes through one control-mode client with a deadline. Sessions and panes are addressed by `$3` and `%5`, which tmux
# never reuses while its server lives: a user who renames or splits changes nothing for us.


CONTROL_SESSION = "_control"
"""The session our client is attached to, a name no attempt can have. Its only pane has ended: nothing runs in it."""

ARG_MAX = 128 * 1024 - 1
"""Bytes of one argument of a program on Linux (MAX_ARG_STRLEN, less its NUL); with a longer one the exec fails inside the pane."""

_ATTACH = (
    *("new-session", "-A", "-s", CONTROL_SESSION, "-n", "nightcrew", "-f", "no-output,ignore-size", "--", "env", "true"),
    *(";", "set-option", "-t", f"={CONTROL_SESSION}:", "@nightcrew_control", "1", ";", "display-message", "-p", READY),
)
"""Attach to our session and make it when it is missing. Its program is two words, so no shell, and ends at once."""

_WORD_MAX = 16_384
"""Bytes of a text that goes by the command line; a longer one goes by a file."""

_NAME = re.compile(r"[a-z0-9-][a-z0-9_-]{0,47}")
_KEY = re.compile(r"(?!pane$|control$)[a-z][a-z0-9_]*")
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,15}")
_ID = re.compile(r"[$%]\d+")
_START_PAUSE_S = 0.02
_BACK_S = 2.0
"""How long a server may take to make its socket again."""


class ServerGone(ToolFailed):
    """No server listens on the socket, so no session of ours lives in one."""


class SessionExists(ToolFailed):
    """A session has that name already: adopt it."""


@dataclass(frozen=True, slots=True)
class Pane:
    """A pane that was just started."""

    session_id: str
    pane_id: str
    pid: int
    """The pane's first process, which is `argv` itself: no shell stands between."""


@dataclass(frozen=True, slots=True)
class PaneInput:
    """A pane as somebody sees it who is about to type into it."""

    dead: bool
    pid: int
    tty: str
    """Path of its terminal."""
    mark: str
    """Of the newest `send_text` that gave one."""
    key_at: int | None
    """When a person who is attached pressed a key last, whole seconds since 1970; None when nobody is attached."""
    printed: int
    """When its window printed anything last, whole seconds since 1970."""
    title: str
    """What its program calls it: a stranger's text, its beginning."""


class Tmux:
    """One private server. Thread-safe. Every call raises ToolFailed after `deadline_s` seconds, ToolMissing without a tmux of
    at least 3.3, and ServerGone when no server runs (`spawn` starts one). The server outlives this object. What a call asked for
    before its deadline passed may still happen when the server wakes up: look by `panes` before doing it again.

    Every control client is a risk for the server (see `control`), so one process, the supervisor, makes the calls that need
    one. `attach_argv`, `server_pid` and `ensure_server` need none: any command may use them.
    """

    def __init__(self, socket: Path, *, deadline_s: float = 10.0, binary: str = "tmux") -> None:
        """`socket` lies in a directory that only we may enter and is at most 107 bytes long."""
        self._socket = socket
        self._deadline_s = deadline_s
        self._binary = binary
        self._env = tmux_control.scrubbed(os.environ)
        self._client = ControlClient(self._argv("-N"), _ATTACH, self._env, Path(f"{socket}.turn"), deadline_s)
        self._sending = threading.Lock()
        self._known_good = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End our client; server and sessions stay. Idempotent; a later call opens a new client."""
        self._client.close()

    def server_pid(self) -> int | None:
        """The server's process, or None when none listens. Asks the kernel, not the server: right even when it hangs."""
        return tmux_control.server_pid(self._socket)

    def reach(self) -> int | None:
        """As `server_pid`; a server whose socket was removed makes it again first, unless another one listens in its place."""
        pid, ends_at = self.server_pid(), time.monotonic() + _BACK_S
        if pid is None and tmux_control.bring_back(self._socket):
            while (pid := self.server_pid()) is None and time.monotonic() < ends_at:
                time.sleep(_START_PAUSE_S)
        return pid

    def ensure_server(self) -> int:
        """The server's process; starts it when there is none. Safe to call from many processes at once: one server results."""
        ends_at = time.monotonic() + self._deadline_s
        pid = self.reach()
        while pid is None:
            started = self._start()
            pid = self.server_pid()
            if pid is None:
                if time.monotonic() > ends_at or not _passing(started.output):
                    raise ToolFailed("tmux server does not start", on=str(self._socket), why=started.output, hint="tmux -f /dev/null new")
                time.sleep(_START_PAUSE_S)
        return pid

    def spawn(self, name: str, argv: Sequence[str], cwd: Path, tags: Mapping[str, str], size: tuple[int, int] = (200, 50)) -> Pane:
        """Start `argv` without a shell in a new session of one pane, `size` columns by rows.

        The same tmux command sets the tags: a session with our name always has them. Each is the session option
        `@nightcrew_<key>`, and all of them are on the pane for `PaneView.tags`. Raises SessionExists (also when the first try got
        through although its client was lost: the session with our tags is the one asked for), NotFound for `cwd`,
        ToolFailed for an argument of more than `ARG_MAX` bytes, ValueError for a name outside `[a-z0-9_-]{1,48}` or with `_` in front.
        """
        _check_spawn(name, argv, cwd, tags)
        self.ensure_server()
        where = f"={name}:"
        columns, rows = size
        new = ("new-session", "-d", "-P", "-F", "#{session_id} #{pane_id} #{pane_pid}", "-s", name, "-n", "agent")
        place = ("-x", str(columns), "-y", str(rows), "-c", escape_format(os.path.abspath(cwd)))  # noqa: PTH100  # keeps symlinks and bytes
        answer = self._ask(
            (*new, *place, "--", *_direct(argv)),
            *(("set-option", "-t", where, f"@nightcrew_{key}", value) for key, value in tags.items()),
            ("set-option", "-p", "-t", where, "@nightcrew_pane", tmux_control.pack_tags(tags)),
            on=name,
        )[0]
        session_id, pane_id, pid = answer.text.split()
        return Pane(session_id, pane_id, int(pid))

    def panes(self) -> list[PaneView]:
        """Every pane of the server, ours and those a user made, in one call; a pane in several sessions is listed once.

        A pane that is `closed` and not yet `dead` has its exit status at the next call.
        """
        panes = tmux_control.parse_panes(self._ask(("list-panes", "-a", "-F", tmux_control.FORMAT))[0].lines)
        if any(pane.closed and not pane.dead for pane in panes):
            self._let_server_reap()
        return panes

    def kill_session(self, session_id: str) -> bool:
        """Close the session; its processes get SIGHUP, which is not yet their end. False when it was gone already."""
        try:
            self._ask(("kill-session", "-t", _id(session_id)))
        except NotFound:
            return False
        return True

    def kill_server(self) -> None:
        """End the server and everything in it; returns when it is gone. Raises ToolFailed when it will not go."""
        ends_at = time.monotonic() + self._deadline_s
        with contextlib.suppress(ServerGone, ClientLost):  # it ends before it answers
            self._ask(("kill-server",), once=True)  # a second try could end a server that somebody just started
        while self.server_pid() is not None:
            if time.monotonic() > ends_at:
                raise ToolFailed("the tmux server does not end", on=str(self._socket))
            time.sleep(_START_PAUSE_S)

    def capture(self, pane_id: str, *, history: bool = True) -> str:
        """The pane's text, wrapped as on the screen, without trailing empty lines; with `history` all that scrolled out too.

        tmux drops what it had not read when the program ended: a program that must show its last words waits until they are read.
        """
        start = ("-S", "-") if history else ()
        return self._ask(("capture-pane", "-p", *start, "-t", _id(pane_id)), on=pane_id)[0].text.rstrip("\n")

    def send_text(self, pane_id: str, text: str, *, enter: bool = True, mark: str = "") -> None:
        """Paste `text` as one bracketed paste, then press Enter as a key of its own, and note `mark` on the pane: all of it, or nothing.

        Control characters are left out and so are line ends at the end. An empty text only presses Enter. That tmux took it
        is no proof that the program did: confirm by its own record. A program that has not asked for bracketed pastes gets the text
        without the marks. Raises ToolFailed when the pane's program has ended.
        """
        target, name = _id(pane_id), f"nightcrew-{os.urandom(8).hex()}"
        if self.pane_input(pane_id).dead:
            raise ToolFailed("cannot type into the pane", on=pane_id, why="its program has ended")
        paste = ("paste-buffer", "-p", "-r", "-d", "-b", name, "-t", target)
        note = ("set-option", "-p", "-t", target, "@nightcrew_sent", mark)
        with self._buffer(name, typed_text(text)) as load:
            # A pane that a person scrolled takes keys for its scroll mode, so leave that first.
            commands: list[tuple[str, ...]] = [("copy-mode", "-q", "-t", target), *([load, paste] if load else [])]
            commands += [("send-keys", "-t", target, "Enter")] if enter else []
            self._ask(*commands, *([note] if mark else []), on=pane_id, once=True)

    def press(self, pane_id: str, keys: Sequence[str]) -> None:
        """Press keys, by tmux's names of them. Raises ValueError for what is none, ToolFailed when the pane's program has ended."""
        if not keys or not all(_KEY_NAME.fullmatch(key) for key in keys):
            raise ValueError(f"not keys: {keys!r}")
        target = _id(pane_id)
        if self.pane_input(pane_id).dead:
            raise ToolFailed("cannot type into the pane", on=pane_id, why="its program has ended")
        self._ask(("copy-mode", "-q", "-t", target), ("send-keys", "-t", target, "--", *keys), on=pane_id, once=True)

    @contextlib.contextmanager
    def _buffer(self, name: str, text: str) -> Iterator[tuple[str, ...]]:
        """The command that loads a buffer; a long text goes by a file, which tmux reads in one go. Nothing for an empty text."""
        if len(data := text.encode()) <= _WORD_MAX:
            yield ("set-buffer", "-b", name, "--", text) if text else ()
            return
        with self._sending:  # one file: what a killed supervisor left is overwritten
            file = self._socket.with_name(f"{self._socket.name}.text")
            files.atomic_write(file, data, durable=False)
            try:
                yield ("load-buffer", "-b", name, os.fspath(file))
            finally:
                file.unlink(missing_ok=True)

    def pane_input(self, pane_id: str) -> PaneInput:
        """What there is to know before somebody types into a pane. Raises NotFound."""
        return _pane_input(*self._ask(*_about_input(pane_id), on=pane_id))

    def pane_and_screen(self, pane_id: str) -> tuple[PaneInput, str]:
        """`pane_input`, and `capture` without history, by one request. Raises NotFound."""
        pane, attached, screen = self._ask(*_about_input(pane_id), ("capture-pane", "-p", "-t", _id(pane_id)), on=pane_id)
        return _pane_input(pane, attached), screen.text.rstrip("\n")

    def terminals(self) -> list[str]:
        """The terminals of people who are attached, as paths."""
        rows = self._ask(("list-clients", "-F", "#{?client_control_mode,,#{client_tty}}"))[0].lines
        return [row for row in rows if row]

    def is_shown(self, tty: str) -> bool:
        """Return whether anybody's terminal shows the pane whose own terminal is `tty`; True for a `tty` that is of no pane here."""
        mine = f"#{{?pane_dead,0,#{{==:#{{pane_tty}},{tty}}}}}"  # an ended pane keeps the name of a terminal that is another's by now
        rows = self._ask(("list-panes", "-a", "-f", mine, "-F", "#{window_active_clients}"))[0].lines
        return not rows or any(row != "0" for row in rows)

    def say(self, terminal: str, text: str, seconds: float) -> None:
        """Show a line on the status line of a person's client for so long, or until they press a key. Raises NotFound when it is gone."""
        self._ask(("display-message", "-c", terminal, "-d", str(int(1000 * seconds)), said_text(text)), on=terminal)

    def attach_argv(self, session_id: str, environ: Mapping[str, str]) -> list[str]:
        """The command that shows the session in the caller's terminal, for `os.execvp`; `environ` is the caller's."""
        return attach_argv(self._binary, self._socket, _id(session_id), environ)

    def _ask(self, *commands: tuple[str, ...], on: str = "", once: bool = False) -> list[Block]:
        """One block for each command; an error of any is raised."""
        self._require()
        try:
            blocks = self._client.request(command_line(*commands), once=once)
        except ClientLost as error:
            if self.server_pid() is None:
                raise self._gone(error.why) from error
            raise
        for block in blocks:
            if not block.ok:
                raise _error(block.text, on or commands[0][0])
        if len(blocks) != len(commands):
            raise ToolFailed("tmux gave an answer we cannot read", on=on or commands[0][0], why=f"{len(blocks)} of {len(commands)} parts")
        return blocks

    def _let_server_reap(self) -> None:
        """A tmux built with libutempter misses the end of a child while it removes a closed pane's login record, and then knows no
        exit status until another child ends (3.3a: one pane in ten of our short ones). The signal makes it look again.
        """
        pid = self.server_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCHLD)

    def _gone(self, why: str = "nobody listens") -> ServerGone:
        return ServerGone("no tmux server runs", on=str(self._socket), why=why, hint="nightcrew up")

    def _start(self) -> tmux_control.Finished:
        self._require()
        return tmux_control.run(self._argv(*tmux_control.START), self._env, self._deadline_s)

    def _require(self) -> None:
        if not self._known_good:
            tmux_control.require(self._binary, self._env, self._deadline_s)
            self._known_good = True

    def _argv(self, *words: str) -> tuple[str, ...]:
        return (self._binary, "-u", "-f", "/dev/null", "-S", os.fspath(self._socket), *words)


def _passing(said: str) -> bool:
    """An old server that is on its way out takes a client that just came down with it; the next try meets none."""
    return not said or tmux_control.CUT in said or "lost server" in said


def _check_spawn(name: str, argv: Sequence[str], cwd: Path, tags: Mapping[str, str]) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"not a session name: {name!r}")
    if not argv:
        raise ValueError("no command to run")
    for key in tags:
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a tag: {key!r}")
    longest = max(len(os.fsencode(word)) for word in argv)
    if longest > ARG_MAX:
        raise ToolFailed("argument is too long for a program", on=name, why=f"{longest} bytes, at most {ARG_MAX}", hint="pass it by file")
    if not cwd.is_dir():  # tmux would start in the home directory and say nothing
        raise NotFound("no such directory to run in", on=str(cwd))


def _direct(argv: Sequence[str]) -> tuple[str, ...]:
    """tmux gives a single word to `sh -c` and executes two or more; `nice -n 0` executes what follows and changes nothing."""
    return tuple(argv) if len(argv) > 1 else ("nice", "-n", "0", "--", *argv)


def _id(target: str) -> str:
    if not _ID.fullmatch(target):
        raise ValueError(f"not a tmux id: {target!r}")
    return target


def _error(said: str, on: str) -> ToolFailed | NotFound:
    if said.startswith("duplicate session"):
        return SessionExists("tmux session exists already", on=on, why=said, kept="the session that has the name")
    if said.startswith("can't find"):
        return NotFound("no such tmux session or pane", on=on, why=said)
    return ToolFailed("tmux refused", on=on, why=said)


def _about_input(pane_id: str) -> tuple[tuple[str, ...], ...]:
    where = ("-t", _id(pane_id))
    fields = "#{pane_dead} #{pane_pid} #{pane_tty} #{@nightcrew_sent} #{window_activity} #{=80:pane_title}"
    clients = ("list-clients", *where, "-F", "#{?client_control_mode,,#{client_activity}}")
    return ("display-message", "-p", *where, fields), clients


def _pane_input(pane: Block, attached: Block) -> PaneInput:
    dead, pid, tty, mark, printed, title = pane.text.split(" ", 5)
    key_at = max((int(line) for line in attached.lines if line), default=None)
    return PaneInput(dead == "1", int(pid), tty, mark, key_at, int(printed), title)


# Screens
# -------
# What a pane shows now, for a person who looks from outside: by one plain call, without a control client, so any command may look.


LOOK_S = 2.0
"""Seconds that a server which does not answer may hold a look up."""
_FACTS = "#{pane_width} #{pane_height} #{cursor_x} #{cursor_y} #{cursor_flag} #{pane_dead} #{@nightcrew_pane}"


@dataclass(frozen=True, slots=True)
class Screen:
    """A pane's screen at the moment of the call."""

    lines: tuple[str, ...]
    """With colours as SGR. The text is a stranger's, and may hold other sequences."""
    columns: int
    rows: int
    cursor: tuple[int, int] | None
    """Column and row, from 0; None: it is hidden."""
    dead: bool


def look(socket: Path, pane_id: str, attempt: str, environ: Mapping[str, str], *, binary: str = "tmux") -> Screen:
    """The screen of a pane that is `attempt`'s: after a restart of the server its number is another's. Raises NotFound, ToolFailed,
    ToolMissing."""
    argv = (binary, "-u", "-N", "-S", os.fspath(socket), "display-message", "-p", "-t", pane_id, _FACTS)
    process = tmux_control.open_group((*argv, ";", "capture-pane", "-p", "-e", "-t", pane_id), tmux_control.scrubbed(environ))
    try:
        out, _ = process.communicate(timeout=LOOK_S)
    except subprocess.TimeoutExpired:
        raise ToolFailed("tmux did not answer", on=pane_id, why=f"no end within {duration(LOOK_S)}", hint="nightcrew doctor") from None
    finally:
        tmux_control.kill_group(process)
    first, _, rest = out.decode("utf-8", "replace").partition("\n")
    facts = first.split(" ", 6)
    if process.returncode or len(facts) < 7 or unpack_tags(facts[6]).get("attempt") != attempt:
        raise NotFound("no pane of", on=attempt, why="it has not started yet, or just ended")
    columns, rows, x, y, shown, dead = map(int, facts[:6])
    return Screen(tuple(rest.removesuffix("\n").split("\n")), columns, rows, (x, y) if shown else None, bool(dead))


# Closing
# -------
# Sessions closed for a person, from a process that has no control client of its own: through libtmux, whose every call starts a
# tmux.


def close_sessions(socket: Path, session_ids: Collection[str], binary: str) -> None:
    """End these sessions (`$3`) and all that runs in them; one that is gone is fine. `binary` is the path of tmux. It waits as long as the
    server does. Raises ToolFailed."""
    import libtmux  # here, not above: it takes longer to import than all of this package
    from libtmux.exc import LibTmuxException

    server = libtmux.Server(socket_path=socket, config_file="/dev/null", tmux_bin=binary)
    try:
        for session in server.sessions:
            if session.session_id in session_ids:
                session.kill()
    except LibTmuxException as error:
        raise ToolFailed("sessions cannot be closed", on=str(socket), why=str(error), kept="those that are left") from error
