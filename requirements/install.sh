#!/usr/bin/env bash
# Create a virtual environment with the packages that a lock pins, and with this project in place:
#   install.sh VENV LOCK
# It is filled by uv (the one in PATH, else $UV, else one that pip installs there), or by pip where there is no uv.
set -euo pipefail
venv=$1
lock=$2
python=${PYTHON:-python3.11}
command -v "$python" >/dev/null || python=python3
if grep -q '^mxnet' "$lock"; then supported="(3, 11) == sys.version_info[:2]" needed="3.11 is needed (mxnet 1.9.1)"; fi
"$python" -c "import sys; sys.exit(not ${supported:-(3, 11) <= sys.version_info[:2]})" || {
    echo "setup: Python ${needed:-3.11 or later is needed}; $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11" >&2
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
uv=$(command -v uv || command -v "${UV:-}" || true)
if [ -z "$uv" ] && pip install --quiet --disable-pip-version-check uv 2>/dev/null; then
    uv=$venv/bin/uv
fi
if [ -n "$uv" ]; then
    installer=("$uv" pip install --quiet --python "$venv/bin/python")
else
    installer=(pip install --quiet --disable-pip-version-check --no-compile)
fi
"${installer[@]}" -r "$lock"
"${installer[@]}" --no-deps --no-build-isolation -e .  # setuptools is pinned with the rest
