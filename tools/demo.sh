#!/bin/sh
# Has five analysts look at a small package with planted problems, demo/shop: at a copy of it that is a git repository of its own.
#
#   tools/demo.sh [ARGUMENT OF NIGHTCREW ANALYZE…]
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."

nightcrew=$(pwd -P)/.venv/bin/nightcrew
shop=${XDG_CACHE_HOME:-$HOME/.cache}/nightcrew/demo/shop

# Nobody's settings, templates and hooks: the copy is only looked at.
git_there() { GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git -C "$shop" -c user.name=demo -c user.email=demo@localhost -c core.hooksPath=/dev/null "$@"; }

mkdir -p "$shop"
git_there init -q -b main
cp -R demo/shop/. "$shop"
git_there add -A
git_there diff --cached --quiet || git_there commit -q -m "A small shop with planted problems"

status=0
"$nightcrew" analyze "$shop" "$@" || status=$?
cat >&2 <<END

That was $shop, with the problems that demo/shop/README.md lists. At a repository of your own:
  $nightcrew analyze ../your-repository
  $nightcrew start -C ../your-repository 'What to do'    # an agent to talk to
  $nightcrew down                                        # stop the supervisor that this has started
END
exit "$status"
