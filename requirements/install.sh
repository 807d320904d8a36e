#!/usr/bin/env bash
# Create a virtual environment with the pinned packages and this project in place. By uv where it can be had, else pip.
set -euo pipefail
venv=$1
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null || python=python3
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || {
    echo "setup: Python 3.11 is needed (mxnet 1.9.1); $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11" >&2
    exit 1
}
# What takes time is not done: pip's own installation where Python has one that installs elsewhere, bytecode of packages
# that nobody imports (Python compiles what it does import, once), and a second environment to build this project in.
[ -x "$venv/bin/python" ] || "$python" -m venv --without-pip "$venv"
in_venv=("$venv/bin/python")
pip() { # of the base Python, working in the environment; of its own where that has none
    "$python" -m pip --python "$venv/bin/python" "$@" 2>/dev/null || {
        "${in_venv[@]}" -m pip --version >/dev/null 2>&1 || "${in_venv[@]}" -m ensurepip >/dev/null
        "${in_venv[@]}" -m pip "$@"
    }
}
uv=$(command -v uv || true)
if [ -z "$uv" ] && pip install --quiet --disable-pip-version-check uv 2>/dev/null; then
    uv=$venv/bin/uv
fi
if [ -n "$uv" ]; then
    installer=("$uv" pip install --quiet --python "$venv/bin/python")
else
    installer=(pip install --quiet --disable-pip-version-check --no-compile)
fi
"${installer[@]}" -r requirements/lock.txt
"${installer[@]}" --no-deps --no-build-isolation -e .  # setuptools is pinned with the rest
