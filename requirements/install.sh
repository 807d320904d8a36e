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
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv 2>/dev/null; then
    installer=("$venv/bin/uv" pip install --quiet --compile-bytecode --python "$venv/bin/python")
else
    installer=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
fi
"${installer[@]}" -r requirements/lock.txt
"${installer[@]}" --no-deps -e .
