#!/bin/sh
# Runs the tests. Root runs everything as an ordinary user, beside it as itself what is different for root or needs root (tests/rounds.py),
# and then as itself what else that user had to skip; or everything as itself, where root cannot become another user.
#
# Where root can install what tests need (a Debian), and in CI, a test that neither user runs fails the run, unless the reason for its skip
# is in ALLOWED_SKIPS (tests/rounds.py).
#
#   tools/test.sh [PYTEST ARGUMENT…]
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
set -- --dist worksteal -m "not soak" "$@"

# Hundreds of tests start Python processes of ours, and an ordinary user of root's checkout cannot keep what each would compile.
.venv/bin/python -m compileall -q -j 2 nightcrew supervisor agents memory worktrees tests || true
# pytest compiles its own form of the tests: once here, or each worker for itself (6 s of its 13 for collecting them).
compile_tests() { env -u PYTHONDONTWRITEBYTECODE .venv/bin/pytest --collect-only -q >/dev/null || true; }

if [ "$(id -u)" != 0 ]; then
    compile_tests
    exec .venv/bin/pytest "$@"
fi

place=$(mktemp -d /tmp/nightcrew-rounds.XXXXXX)
chmod 711 "$place"
: >"$place/skipped"
: >"$place/skipped-beside"
chmod 666 "$place/skipped"
refuse=
if [ -n "${CI:-}" ] || command -v apt-get >/dev/null; then refuse=--refuse-skips; fi
beside=
trap '[ -z "$beside" ] || kill -INT "$beside" 2>/dev/null || true; wait || true; rm -rf "$place"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
status=0
# 5: of the tests that were asked for none is of this round.
of_root() { .venv/bin/pytest "$@" || [ $? = 5 ]; }

# Tests wait for real processes a third of the time: two workers of root's fill it. At SIGINT, which a shell's `&` ignores, pytest ends
# what its tests have started.
env --default-signal=INT .venv/bin/pytest "$@" -n 2 --differs-for-root "--skipped-to=$place/skipped-beside" >"$place/beside" 2>&1 &
beside=$!
compile_tests # one process: it leaves the other core to root's round
tools/as-user.sh .venv/bin/pytest -p no:cacheprovider "--skipped-to=$place/skipped" "$@" || status=$?
code=0
wait "$beside" || code=$?
beside=
cat "$place/beside"
[ "$code" = 5 ] || [ "$code" = 0 ] || status=$code
if [ -s "$place/skipped" ]; then
    # A few: workers would first import it all. After this round nobody else runs them.
    of_root "--skipped-from=$place/skipped" "--skipped-beside=$place/skipped-beside" $refuse "$@" -n 0 || status=1
else
    echo "the ordinary user's round did not end, or could not be: everything as root" >&2
    .venv/bin/pytest "$@" || status=$?
fi
exit "$status"
