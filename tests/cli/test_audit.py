"""`nightcrew audit`."""

from __future__ import annotations

import json

from supervisor.host import files, secrets
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.kernel.errors import NotFound, ToolFailed, UsageError
from tests.support import House


def test_there_is_none_at_first(house: House) -> None:
    for verb in ("verify", "show"):
        done = house.run("audit", verb)
        assert (done.returncode, "no audit log" in done.stderr) == (NotFound.exit_code, True)


def test_what_cannot_be_read_is_said(house: House) -> None:
    files.private_dir(house.home.root)
    Audit(house.home.audit, secrets.own(house.home.secret), SystemClock(), "gateway").note("token refused", {})
    for moment in ("99999999d", "9999-12-31T23:59:59-23:00"):
        done = house.run("audit", "show", "--since", moment)
        assert (done.returncode, "is not in the years 1 to 9999" in done.stderr) == (UsageError.exit_code, True), done.stderr
    house.home.secret.rename(house.home.secret.with_suffix(".kept"))
    done = house.run("audit", "verify")
    assert (done.returncode, "the secret is gone" in done.stderr) == (NotFound.exit_code, True), done.stderr
    house.home.secret.with_suffix(".kept").rename(house.home.secret)
    house.home.audit.unlink()
    house.home.audit.mkdir()
    for verb in ("verify", "show"):
        done = house.run("audit", verb)
        assert (done.returncode, "cannot open the audit log" in done.stderr) == (ToolFailed.exit_code, True), done.stderr


def test_it_is_shown_and_checked(house: House) -> None:
    files.private_dir(house.home.root)
    log = Audit(house.home.audit, secrets.own(house.home.secret), SystemClock(), "gateway")
    for number in range(3):
        log.note("token refused", {"why": f"it has ended \x1b[31m{number}"})
    assert house.ok("audit", "verify") == "3 records, whole\n"
    shown = house.ok("audit", "show", "-n", "2").splitlines()
    assert len(shown) == 2
    assert "gateway    token refused: why it has ended \\x1b[31m2" in shown[1]
    first = json.loads(house.ok("audit", "show", "--json"))["entries"][0]
    assert (first["in"], first["number"], first["kind"], first["reason"]) == ("audit.jsonl", 1, "token", "it has ended \x1b[31m0")
    house.home.audit.write_bytes(house.home.audit.read_bytes().replace(b"[31m1", b"[31m7"))
    done = house.run("audit", "verify")
    assert (done.returncode, done.stdout) == (1, "line 2: it is no record of ours, or was changed\n")
    assert json.loads(house.run("audit", "verify", "--json").stdout)["line"] == 2
