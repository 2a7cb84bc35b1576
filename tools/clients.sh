#!/bin/sh
# Installs the real command-line agents that the contract tests talk to (tests/gateway/clients), at the versions below, outside
# the checkout: in $NIGHTCREW_CLIENTS, or else in nightcrew/clients of the user's cache directory. `make clients` calls it.
#
# One line says where they are. Where npm is missing or its registry does not answer: one line, and exit status 0, because the tests
# that need them are skipped, visibly. Nothing is started and no account is used: the tests only talk to a simulated provider.
set -eu

claude_version=2.1.329
codex_version=0.169.0

place=${NIGHTCREW_CLIENTS:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/nightcrew/clients}

say() { printf 'clients: %s\n' "$*" >&2; }

# Each is asked, because npm calls an install good whose native binary never came.
installed() {
    [ "$("$1/node_modules/.bin/claude" --version 2>/dev/null)" = "$claude_version (Claude Code)" ] &&
        [ "$("$1/node_modules/.bin/codex" --version 2>/dev/null)" = "codex-cli $codex_version" ]
}

without() {
    say "not installed, $*: their contract tests will be skipped"
    exit 0
}

stamp="$claude_version $codex_version"
if [ "$(cat "$place/stamp" 2>/dev/null)" = "$stamp" ]; then
    say "Claude Code $claude_version and Codex $codex_version are in $place/node_modules/.bin"
    exit 0
fi

command -v npm >/dev/null || without "npm is missing (Debian, Ubuntu: apt-get install npm)"
mkdir -p "$(dirname -- "$place")"
new=$(mktemp -d "$place.XXXXXX")
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT TERM
say "installing Claude Code $claude_version and Codex $codex_version into $place (about 250 MB to fetch)"
npm install --prefix "$new" --loglevel=error --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000 \
    "@anthropic-ai/claude-code@$claude_version" "@openai/codex@$codex_version" >"$new/log" 2>&1 ||
    without "npm could not fetch them ($(sed -n 's/^npm error //p' "$new/log" | head -n 1))"
installed "$new" || without "what npm fetched does not run here"
rm -f "$new/log"
echo "$stamp" >"$new/stamp"
chmod 755 "$new" # mktemp closed it to others, and `make test` also runs as an ordinary user
rm -rf "$place"
mv "$new" "$place"
