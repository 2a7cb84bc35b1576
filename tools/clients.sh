#!/bin/sh
# Installs the real command-line agents that the contract tests talk to (tests/agents/clients, tests/gateway/clients), at the versions
# below, outside the checkout: in $NIGHTCREW_CLIENTS, or else in nightcrew/clients of the user's cache directory. `make clients` calls it.
#
# `bin` there has a link for each one that answers with its version. One that is missing costs a line, not the exit status, because
# the tests that need it are skipped, visibly. Nothing is started but `--version`; no account is used.
set -eu

npm_programs="claude=@anthropic-ai/claude-code@2.1.329 codex=@openai/codex@0.169.0 gemini=@google/gemini-cli@0.61.0
qwen=@qwen-code/qwen-code@0.15.10 opencode=opencode-ai@1.18.33"
aider=0.86.2
axe=4.14.1
enough_s=420 # for npm, and again for pip, whatever a registry does

place=${NIGHTCREW_CLIENTS:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/nightcrew/clients}
stamp="$npm_programs aider=$aider"

say() { printf 'clients: %s\n' "$*" >&2; }

# NAME VERSION PROGRAM: whether it is there and answers so. It is asked, because npm calls an install good whose native binary never came.
answers() {
    [ -x "$3" ] && HOME="$place/home" timeout 60 "$3" --version </dev/null 2>/dev/null | grep -qwF -- "$2"
}

# The same; makes or takes away its link.
link() {
    if answers "$@"; then
        ln -sfn "$3" "$place/bin/$1"
    else
        rm -f "$place/bin/$1" "$place/node_modules/.bin/$1"
        say "$1 $2 is not installed${4:+, $4}: its contract tests will be skipped"
        complete=
    fi
}

with_npm() {
    command -v npm >/dev/null || { echo "npm is missing (Debian, Ubuntu: apt-get install npm)"; return; }
    wanted=
    for program in $npm_programs; do
        answers "${program%%=*}" "${program##*@}" "$place/node_modules/.bin/${program%%=*}" || wanted=1
    done
    [ -n "$wanted" ] || return 0
    say "npm installs into $place (about 350 MB to fetch)"
    # All are named, because npm takes away what is not.
    # shellcheck disable=SC2046
    timeout "$enough_s" npm install --prefix "$place" --loglevel=error --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000 \
        $(printf '%s\n' $npm_programs | sed 's/^[a-z]*=//') >"$place/npm.log" 2>&1 ||
        echo "npm could not fetch it ($(sed -n 's/^npm error //p' "$place/npm.log" | head -n 1))"
}

with_pip() {
    answers aider "$aider" "$place/aider/bin/aider" && return 0
    say "pip installs aider $aider into $place/aider (about 200 MB to fetch)"
    rm -rf "$place/aider"
    {
        if command -v uv; then
            uv venv -q "$place/aider" && timeout "$enough_s" uv pip install -q --python "$place/aider/bin/python" "aider-chat==$aider"
        else
            python3 -m venv "$place/aider" && timeout "$enough_s" "$place/aider/bin/pip" install -q --disable-pip-version-check \
                --retries 1 --timeout 60 "aider-chat==$aider"
        fi
    } >"$place/aider.log" 2>&1 && return 0
    rm -rf "$place/aider"
    echo "pip could not fetch it ($(tail -n 1 "$place/aider.log"))"
}

# What checks our page for who cannot see it (tests/views/web): a library, 3 MB, in a directory of its own.
with_axe() {
    [ "$(cat "$place/axe/stamp" 2>/dev/null)" = "$axe" ] && return 0
    mkdir -p "$place/axe"
    command -v npm >/dev/null && timeout 120 npm install --prefix "$place/axe" --loglevel=error --no-audit --no-fund --fetch-retries=1 \
        --fetch-timeout=60000 "axe-core@$axe" >"$place/axe.log" 2>&1 && echo "$axe" >"$place/axe/stamp" && return 0
    say "axe-core $axe is not installed: its tests of the page will be skipped"
}
umask 022 # `make test` also runs as an ordinary user
with_axe

if [ "$(cat "$place/stamp" 2>/dev/null)" = "$stamp" ]; then
    say "all six are in $place/bin"
    exit 0
fi
mkdir -p "$place/bin" "$place/home"
rm -f "$place/stamp"
complete=1
why=$(with_npm)
for program in $npm_programs; do
    link "${program%%=*}" "${program##*@}" "$place/node_modules/.bin/${program%%=*}" "$why"
done
why=$(with_pip)
link aider "$aider" "$place/aider/bin/aider" "$why"
rm -rf "$place/home"
if [ -n "$complete" ]; then echo "$stamp" >"$place/stamp"; fi
