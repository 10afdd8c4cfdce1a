#!/bin/sh
# Makes the virtual environment: make_venv.sh PYTHON DIRECTORY TORCH(0|1).
set -eu
python=$1 venv=$2 torch=$3

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $python is older than 3.11; run make PYTHON=/path/to/python3.11" >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "setup: installing Python packages into $venv (the first time takes a minute or two)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[probe,scale]' --group dev --group bench --group deploy
if [ "$torch" = 1 ]; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0
fi
