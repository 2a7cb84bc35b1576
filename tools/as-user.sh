#!/bin/sh
# Runs a command in this checkout as an ordinary user (uid 65534) with a home and a temporary directory of its own, both
# removed afterwards. `make test` uses it when root runs the suite, because most of what protects files means nothing to root.
#
#   tools/as-user.sh COMMAND [ARGUMENT…]
#
# Exit status: the command's. Where it cannot be done: 0, and one line that says why. Nothing to do for who is not root: 0.
#
# The checkout or the interpreter may lie below a directory that is closed to others, such as root's home. Such directories are
# opened inside a private mount namespace: no mode is changed, and nothing outside this process tree sees a difference.
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
checkout=$(pwd -P)
user=65534

as_user() {
    env -i PATH="$PATH" SHELL=/bin/sh LANG=C.UTF-8 TERM="${TERM:-dumb}" CI="${CI:-}" HOME="$home" TMPDIR="$home/tmp" \
        PYTHONDONTWRITEBYTECODE=1 HYPOTHESIS_STORAGE_DIRECTORY="$home/hypothesis" \
        ${NIGHTCREW_TEST_SEED:+NIGHTCREW_TEST_SEED="$NIGHTCREW_TEST_SEED"} ${NIGHTCREW_TEST_COLD:+NIGHTCREW_TEST_COLD="$NIGHTCREW_TEST_COLD"} \
        setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs "$@"
}

# By full path: a relative one works behind any wall, because the current directory is inherited open. And one exec further than
# setpriv's own, which still has root's file capabilities: the interpreter would seem usable and fail in every child.
usable() { as_user test -r "$checkout/pyproject.toml" && as_user sh -c '"$1" -c ""' sh "$checkout/.venv/bin/python" 2>/dev/null; }

# The topmost directory on the way to $1 that keeps the ordinary user out; nothing when the way is free.
closed() {
    [ "$1" != / ] || return 0
    above=$(closed "$(dirname -- "$1")")
    if [ -n "$above" ]; then
        echo "$above"
    elif ! as_user test -x "$1"; then
        echo "$1"
    fi
}

# Shows the entries of $2, a view of a directory from before, at $1, where an empty file system stands now.
refill() {
    mkdir -p "$1"
    for entry in "$2"/* "$2"/.[!.]*; do
        target="$1/${entry##*/}"
        if [ -L "$entry" ]; then
            cp -P "$entry" "$target"
        elif [ -d "$entry" ]; then
            mkdir -p "$target" && mount --bind "$entry" "$target"
        elif [ -e "$entry" ]; then
            : >>"$target" && mount --bind "$entry" "$target"
        fi
    done
}

# Opens the ways to the checkout and to the interpreter. Only inside a private mount namespace.
open_ways() {
    base=$(.venv/bin/python -I -S -c 'import sys; print(sys.base_prefix)')
    checkout_wall=$(closed "$checkout")
    base_wall=$(closed "$base")
    mkdir "$home/checkout" "$home/base"
    mount --bind "$checkout" "$home/checkout" # both views are taken before a wall hides what is behind it
    mount --bind "$base" "$home/base"
    [ -z "$checkout_wall" ] || mount -t tmpfs -o mode=0755 none "$checkout_wall"
    [ -z "$base_wall" ] || [ "$base_wall" = "$checkout_wall" ] || mount -t tmpfs -o mode=0755 none "$base_wall"
    [ -z "$checkout_wall" ] || refill "$checkout" "$home/checkout"
    [ -z "$base_wall" ] || refill "$base" "$home/base"
    umount "$home/checkout" "$home/base"
    cd "$checkout"
}

skip() {
    echo "skipped, not run as an ordinary user: $*" >&2
    exit 0
}

if [ "${1:-}" = --inside ]; then
    home=$2
    shift 2
    open_ways
    usable || skip "uid $user cannot read this checkout or run .venv/bin/python"
    as_user "$@" # not exec: the namespace lives as long as its first process
    exit
fi

[ "$(id -u)" = 0 ] || exit 0
command -v setpriv >/dev/null || skip "setpriv (package util-linux) is missing"
home=$(mktemp -d /tmp/nightcrew-user.XXXXXX) # not $TMPDIR, which may be closed as well
# The views of the checkout are mounted below it, but never in the namespace that this line runs in.
trap 'rm -rf --one-file-system "$home"' EXIT
trap 'exit 130' INT # or the directory stays
trap 'exit 143' TERM
mkdir "$home/tmp" "$home/hypothesis"
# What property tests know of our sources: each worker would parse them all for it (2.6 s), since none finds the others' in time.
[ ! -d .hypothesis/constants ] || cp -R .hypothesis/constants "$home/hypothesis/"
printf "[user]\n\tname = Ordinary User\n\temail = user@example.invalid\n" >"$home/.gitconfig"
chown -R "$user:$user" "$home"
if usable; then
    as_user "$@"
else
    unshare --mount true 2>/dev/null || skip "the way to this checkout or to its Python is closed to uid $user, and mount namespaces are not allowed here"
    unshare --mount -- "$0" --inside "$home" "$@"
fi
