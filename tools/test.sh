#!/bin/sh
# Runs the tests. Root runs everything as an ordinary user, beside it as itself what is different for root or needs root (tests/rounds.py),
# and then as itself what else that user had to skip; or everything as itself, where root can become nobody.
#
#   tools/test.sh [PYTEST ARGUMENT…]
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
set -- --dist worksteal -m "not soak" "$@"

# Hundreds of tests start Python processes of ours, and an ordinary user of root's checkout cannot keep what each would compile.
.venv/bin/python -m compileall -q -j 2 supervisor agents memory worktrees tests || true
# pytest compiles its own form of the tests: once here, or each worker for itself (6 s of its 13 for collecting them).
compile_tests() { env -u PYTHONDONTWRITEBYTECODE .venv/bin/pytest --collect-only -q >/dev/null || true; }

if [ "$(id -u)" != 0 ]; then
    compile_tests
    exec .venv/bin/pytest "$@"
fi

place=$(mktemp -d /tmp/nightcrew-rounds.XXXXXX)
chmod 711 "$place"
: >"$place/skipped"
chmod 666 "$place/skipped"
beside=
trap '[ -z "$beside" ] || kill -INT "$beside" 2>/dev/null || true; wait || true; rm -rf "$place"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
status=0
# 5: of the tests that were asked for none is of this round.
of_root() { .venv/bin/pytest "$@" || [ $? = 5 ]; }

# Tests wait for real processes a third of the time: two workers of root's fill it. At SIGINT, which a shell's `&` ignores, pytest ends
# what its tests have started.
env --default-signal=INT .venv/bin/pytest "$@" -n 2 --differs-for-root >"$place/beside" 2>&1 &
beside=$!
compile_tests # one process: it leaves the other core to root's round
tools/as-user.sh .venv/bin/pytest -p no:cacheprovider "--skipped-to=$place/skipped" "$@" || status=$?
code=0
wait "$beside" || code=$?
beside=
cat "$place/beside"
[ "$code" = 5 ] || [ "$code" = 0 ] || status=$code
if [ -s "$place/skipped" ]; then
    of_root "--skipped-from=$place/skipped" "$@" -n 0 || status=1 # a few: workers would first import it all
else
    echo "the ordinary user's round did not end, or could not be: everything as root" >&2
    .venv/bin/pytest "$@" || status=$?
fi
exit "$status"
