#!/bin/sh
# Installs what `nightcrew bench gateway` compares with, in an environment of its own outside this checkout (about 750 MB).
# Nothing of it is needed for anything else. `make bench-peers` calls it.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
place=${XDG_CACHE_HOME:-$HOME/.cache}/nightcrew/peers/litellm
version=1.106.2
[ "$(cat "$place/version" 2>/dev/null || true)" = "$version" ] && exit 0
printf 'peers: installing LiteLLM %s into %s (some minutes)\n' "$version" "$place" >&2
.venv/bin/python -m venv --clear "$place"
"$place/bin/python" -m pip install -qq --no-input --disable-pip-version-check "litellm[proxy]==$version"
printf '%s\n' "$version" >"$place/version"
