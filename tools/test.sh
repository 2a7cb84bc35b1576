#!/bin/sh
# Runs the tests. Root runs everything as an ordinary user, and then as itself what that user had to skip and what is different for root
# (tests/rounds.py); or everything as itself, where root can become nobody.
#
#   tools/test.sh [PYTEST ARGUMENT…]
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
set -- --dist worksteal -m "not soak" "$@"

# Hundreds of tests start Python processes of ours, and an ordinary user of root's checkout cannot keep what each would compile.
.venv/bin/python -m compileall -q -j 2 supervisor agents worktrees tests || true
# pytest compiles its own form of the tests: once here, or each worker for itself (6 s of its 13 for collecting them).
env -u PYTHONDONTWRITEBYTECODE .venv/bin/pytest --collect-only -q >/dev/null || true

[ "$(id -u)" = 0 ] || exec .venv/bin/pytest "$@"

skipped=$(mktemp /tmp/nightcrew-skipped.XXXXXX)
trap 'rm -f "$skipped"' EXIT
chmod 666 "$skipped"
status=0
tools/as-user.sh .venv/bin/pytest -p no:cacheprovider "--skipped-to=$skipped" "$@" || status=$?
[ ! -s "$skipped" ] || set -- "--second-round=$skipped" "$@"
.venv/bin/pytest "$@" || status=$?
exit "$status"
