#!/bin/sh
# Makes .venv (once) and installs Leeward into it with the extras named: sh scripts/setup.sh [EXTRA…]
# PYTHON=… chooses the interpreter. Leaves a stamp, .venv/.installed-EXTRA, when all is in place.
set -eu
cd "$(dirname "$0")/.."

usable='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))'

find_python() {
    for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
        if "$candidate" -c "$usable" 2>/dev/null; then
            if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
                echo "$candidate"
                return
            fi
            incomplete=$candidate
        fi
    done
    if [ -n "${incomplete:-}" ]; then
        echo "error: $incomplete cannot make virtual environments: install its venv package" \
            "(on Debian and Ubuntu: apt install python3-venv), or set PYTHON=…" >&2
    elif [ -n "${PYTHON:-}" ]; then
        echo "error: PYTHON=$PYTHON is not Python 3.11, 3.12 or 3.13" >&2
    else
        echo "error: no Python 3.11, 3.12 or 3.13 found on PATH: install one, or set PYTHON=…" >&2
    fi
    return 1
}

if ! .venv/bin/python -c "$usable" 2>/dev/null || ! .venv/bin/python -m pip --version >/dev/null 2>&1
then
    python=$(find_python)
    echo "Making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

extras=$(echo "$*" | tr ' ' ',')
echo "Installing Leeward into .venv (about a minute, once)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".${extras:+[$extras]}"
for extra in "$@"; do
    touch ".venv/.installed-$extra"
done
touch .venv/.installed-base
