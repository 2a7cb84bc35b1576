"""The client in an agent's pane, for machines without a C compiler: `client.c` says what it does, step by step the same.

Run as `python -I -S client.py SOCKET COLD_COMMAND… ATTEMPT_DIR`. C modules only: `os`, `socket` and `signal` would cost more than its
whole work.
"""

import _socket
import fcntl
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

_NOTTY = 0x5422 if sys.platform == "linux" else 0x20007471  # termios.TIOCNOTTY; importing termios costs a library
_SCTTY = 0x540E if sys.platform == "linux" else 0x20007461
_ANSWER = 128
_REQUEST_MAX = 128 * 1024
_USAGE, _NO_STATUS = 64, 70
_PATIENCE_S = 10
_KIND = _socket.SOCK_SEQPACKET if sys.platform == "linux" else _socket.SOCK_STREAM
_RELAYED = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT)

_runner = 0
_pending: list[int] = []


def main() -> int:
    """Hand the pane over and wait; the status to exit with."""
    if len(sys.argv) < 4:
        _say("usage: client SOCKET COLD_COMMAND ATTEMPT_DIR")
        return _USAGE
    zygote = _socket.socket(_socket.AF_UNIX, _KIND)
    _give_up_after(zygote, _PATIENCE_S)
    try:
        zygote.connect(sys.argv[1])
    except OSError as error:
        _start_cold(f"the warm process does not answer: {_reason(error)}", False)
    request = _request()
    if len(request) > _REQUEST_MAX:
        _start_cold("the environment is too large to hand over", False)
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)  # giving the terminal up sends it
    led = posix.getsid(0) == posix.getpid() and posix.isatty(0) and _ioctl(_NOTTY)
    for number in _RELAYED:
        _signal.signal(number, _relay)
    try:
        _hand_over(zygote, request)
        word, value = _first_answer(zygote)
    except OSError as error:
        _start_cold(f"the warm process does not answer: {_reason(error)}", led)
    if word == "pid":
        word, value = _wait(zygote, int(value))
        if word != "no":
            return int(value) if word == "end" else _NO_STATUS
    _start_cold(f"the warm process refused: {value}" if word == "no" else "the warm process does not answer: it ended", led)
    return _NO_STATUS


def _request() -> bytes:
    entries = [b"dir=" + sys.argv[-1].encode("utf-8", "surrogateescape")]
    entries += [b"env=" + name + b"=" + value for name, value in posix.environ.items()]
    body = b"".join(entry + b"\0" for entry in entries)
    return len(body).to_bytes(4, sys.byteorder) + body


def _hand_over(zygote: _socket.socket, request: bytes) -> None:
    handles = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    sent = zygote.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handles)])
    while sent < len(request):
        sent += zygote.send(request[sent:])


def _first_answer(zygote: _socket.socket) -> tuple[str, str]:
    """Without one in time the request is taken back. A runner that does not know it yet has said its pid before."""
    try:
        return _answer(zygote, _socket.MSG_WAITALL)
    except BlockingIOError:
        zygote.shutdown(_socket.SHUT_WR)
        return _answer(zygote, _socket.MSG_DONTWAIT)


def _wait(zygote: _socket.socket, runner: int) -> tuple[str, str]:
    global _runner
    _runner = runner
    for number in tuple(_pending):
        _relay(number, None)
    _give_up_after(zygote, 0)
    try:
        return _answer(zygote, _socket.MSG_WAITALL)
    except OSError:
        return "", ""


def _answer(zygote: _socket.socket, flags: int) -> tuple[str, str]:
    """A word and its value; both are empty at the end of the connection."""
    word, _, value = zygote.recv(_ANSWER, flags).rstrip(b"\0").decode("utf-8", "replace").partition(" ")
    return word, value


def _give_up_after(zygote: _socket.socket, seconds: int) -> None:
    timeval = seconds.to_bytes(8, sys.byteorder) + bytes(8)
    for option in (_socket.SO_SNDTIMEO, _socket.SO_RCVTIMEO):
        zygote.setsockopt(_socket.SOL_SOCKET, option, timeval)


def _reason(error: OSError) -> str:
    return "not in time" if isinstance(error, BlockingIOError) else error.strerror or str(error)


def _relay(number: int, _frame: object) -> None:
    _pending.append(number)
    try:
        if _runner:
            posix.kill(_runner, number)
    except OSError:
        return


def _start_cold(why: str, led: bool) -> None:
    """Take the terminal back and become the runner that starts cold."""
    _say(f"{why}; starting cold")
    if led:
        _ioctl(_SCTTY)
    for number in _RELAYED:
        _signal.signal(number, _signal.SIG_DFL)
    for came in _pending:
        posix.kill(posix.getpid(), came)
    posix.execv(sys.argv[2], sys.argv[2:])


def _ioctl(request: int) -> bool:
    try:
        fcntl.ioctl(0, request, 0)
    except OSError:
        return False
    return True


def _say(text: str) -> None:
    posix.write(2, f"nightcrew: {text}\n".encode("utf-8", "replace"))


if __name__ == "__main__":
    posix._exit(main())
