#!/bin/sh
# Makes this checkout ready to run: tmux, git, .venv and the locked dependencies. `make` calls it before every command.
#
# Silent and instant when nothing is to do. What is missing is installed (by apt-get, as root or with password-less sudo) or
# else named in one line, with exit status 2. PYTHON=/path/to/python3 chooses another interpreter than the one on PATH.
# With --tests it also installs, where it may, what some tests need besides (Chromium, bubblewrap and others). Without them those tests are
# skipped; where it may install, such a skip fails the run (tools/test.sh).
set -eu
CDPATH='' cd -- "$(dirname -- "$0")/.."
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV # another project's modules must not get into ours

tmux_min=3.3 # older ones do not start control clients the way we use them
git_min=2.38 # merge-tree --write-tree
stamp=.venv/nightcrew.stamp

say() { printf 'setup: %s\n' "$*" >&2; }

die() {
    say "$*"
    exit 2
}

# at_least 3.3 "tmux 3.3a": is the version inside the second text new enough? One without a number is a development build.
at_least() {
    found=$(printf '%s' "$2" | sed 's/^[^0-9]*//; s/[^0-9.].*//')
    [ -z "$found" ] || [ "$(printf '%s\n' "$1" "$found" | sort -V | head -n 1)" = "$1" ]
}

# What .venv depends on. The first two lines say whether it can be kept, the third whether its packages are the locked ones.
place() {
    .venv/bin/python -V 2>/dev/null || echo none
    pwd -P
}
contents() { cat requirements/dev.txt pyproject.toml tools/setup.sh | sha256sum; }

venv_fits() { [ -f "$stamp" ] && [ "$(head -n 2 "$stamp")" = "$(place)" ]; }

# Debian's names of the packages that are still needed, one a line.
missing() {
    at_least "$tmux_min" "$(tmux -V 2>/dev/null || echo 0)" || echo tmux
    at_least "$git_min" "$(git --version 2>/dev/null || echo 0)" || echo git
    venv_fits || "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        "$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
}

# A pyenv shim costs 50 ms a call, so the interpreter behind it is looked up once.
find_python() {
    python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)' 2>/dev/null) ||
        die "python3 >= 3.11 is needed and none answers: install it (Debian, Ubuntu: apt-get install python3), then run make again"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "python3 >= 3.11 is needed and $python is $("$python" -V): name another with make PYTHON=/path/to/python3"
}

# Fails without a word when this user may not install packages here.
may_apt() {
    command -v apt-get >/dev/null || return 1
    as_root='env'
    if [ "$(id -u)" != 0 ]; then
        sudo -n true 2>/dev/null || return 1
        as_root='sudo -n env'
    fi
}

apt_update() { may_apt && apt_get update >/dev/null 2>&1; }

apt_install() {
    may_apt || return 1
    say "installing $* with apt-get"
    log=$(mktemp)
    apt_get install "$@" >"$log" 2>&1 || { apt_get update && apt_get install "$@"; } >"$log" 2>&1 || cat "$log" >&2
    rm -f "$log"
}

# The lists are fetched only when the first try fails: a new machine has none, and one broken third-party list is no reason to stop.
apt_get() { $as_root DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$@"; }

provide_tools() {
    needed=$(missing)
    [ -n "$needed" ] || return 0
    # shellcheck disable=SC2086 # one word a package
    apt_install $needed || true
    needed=$(missing | tr '\n' ' ')
    [ -z "$needed" ] ||
        die "needs tmux >= $tmux_min, git >= $git_min and python3-venv: install ${needed% } (Debian, Ubuntu: sudo apt-get install ${needed% }), then run make again"
}

# Debian's names of what some tests need and is not there, one a line.
missing_for_tests() {
    for need in bwrap:bubblewrap mkfs.xfs:xfsprogs fish:fish zsh:zsh cron:cron strace:strace ip:iproute2 cc:gcc systemd-analyze:systemd; do
        has "${need%%:*}" || echo "${need#*:}"
    done
    [ -e /usr/include/stdio.h ] || echo libc6-dev
    has chromium || has chromium-browser || has google-chrome || echo chromium
}
has() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null; }

provide_for_tests() {
    for package in $(missing_for_tests); do # one by one: a package that this release does not have keeps none of the others away
        apt_install "$package" || true
    done
    needed=$(missing_for_tests | tr '\n' ' ')
    [ -z "$needed" ] || say "some tests are skipped without ${needed% }"
}

has_prometheus() { PATH="$PATH:.venv/bin" command -v prometheus >/dev/null && PATH="$PATH:.venv/bin" command -v promtool >/dev/null; }

# Unpacked beside the interpreter (19 MB to fetch) and never installed: Debian's package would start a server on this machine.
unpack_prometheus() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    rm -rf .venv/deb && mkdir -p .venv/deb
    (cd .venv/deb && apt-get -qq -o APT::Sandbox::User=root download prometheus) >/dev/null 2>&1 || return 1
    dpkg-deb --fsys-tarfile .venv/deb/prometheus_*.deb | tar -x -C .venv/deb ./usr/bin/prometheus ./usr/bin/promtool || return 1
    mv .venv/deb/usr/bin/prometheus .venv/deb/usr/bin/promtool .venv/bin/
}

provide_prometheus() {
    has_prometheus && return 0
    unpack_prometheus || { apt_update && unpack_prometheus; } || say "some tests are skipped without prometheus and promtool"
    rm -rf .venv/deb
}

pip_install() { .venv/bin/python -m pip install -qq --no-input --disable-pip-version-check --no-deps "$@"; }

# Installs $* with uv, which needs a third of pip's time, from the index that pip is set to use. Where uv fails, pip does it, and says why
# where it fails too. uv copies files instead of linking them to its cache: some tests count the names of a file.
install() {
    if [ ! -x .venv/bin/uv ]; then # from the lock as well
        sed -n '/^uv==/,/[^\\]$/p' requirements/dev.txt >.venv/uv.txt
        pip_install --require-hashes -r .venv/uv.txt || return 1
        rm .venv/uv.txt
    fi
    index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
    .venv/bin/uv pip install -q --python .venv/bin/python ${index:+--default-index "$index"} --no-deps --compile-bytecode --link-mode copy "$@" \
        2>/dev/null || pip_install "$@"
}

fill_venv() {
    say "installing the locked dependencies into .venv (up to a minute)"
    # The two go apart: the lock has no hash for this directory. Hatchling, which builds it, comes from the lock.
    { install --require-hashes -r requirements/dev.txt && install --no-build-isolation --editable .; } ||
        die "pip could not fill .venv, its reason is above: is a package index reachable? Then run make again"
}

if [ "${1:-}" = --tests ]; then
    provide_for_tests
    provide_prometheus
    exit 0
fi
if venv_fits; then python=.venv/bin/python; else find_python; fi
provide_tools
if venv_fits && [ "$(tail -n 1 "$stamp")" = "$(contents)" ]; then exit 0; fi
venv_fits || "$python" -m venv --clear .venv || die "$python could not make .venv, its reason is above"
fill_venv
{ place; contents; } >"$stamp"
