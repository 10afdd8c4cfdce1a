#!/bin/sh
# Makes the virtual environment: make_venv.sh PYTHON DIRECTORY product|tests|bench; "check" only says why one that is there does not run.
# "python", before it, takes away one that another PYTHON made, and warns of a Python that only this account can run.
# "product" is what the commands and the demo need; "tests" is that and what only the gates and tests do, torch among it;
# "bench", after it, the engines that benchmarks compare with. Not in "tests": Arrow loads them into every process where they are.
set -eu
python=$1 venv=$2 what=$3
log=$venv/install.log

# Its Python may lie where this account may not go, as below another's home. One of ours that is only old is made again below.
if [ -L "$venv/bin/python" ] && ! "$venv/bin/python" -c "" 2>/dev/null && { [ "$what" = check ] || [ ! -O "$venv" ]; }; then
    echo "setup: $venv, made by $(stat -c %U "$venv"), does not run for $(id -un): its Python, $(readlink -m "$venv/bin/python"), is gone or not yours to run; make a clone of your own, or remove $venv and run make again" >&2
    exit 1
fi
[ "$what" != check ] || exit 0

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $python is older than 3.11; run make PYTHON=/path/to/python3.11" >&2
    exit 1
}

# The interpreter itself: of one in a virtual environment, that which made it.
base() {
    "$1" -c 'import os, sys; print(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))'
}

# The first of a path's directories, from below, that other accounts may not enter; nothing if there is none.
closed() {
    path=$1
    while [ "$path" != / ]; do
        path=$(dirname "$path")
        [ -e "$path" ] || continue
        case $(stat -c %A "$path") in
        *[xt]) ;;
        *) echo "$path" && return ;;
        esac
    done
}

if [ "$what" = python ]; then
    chosen=$(base "$python")
    # `python3` is the default of make: whichever the PATH names today, it was not asked for.
    if [ -x "$venv/bin/python" ] && [ "$python" != python3 ] && [ "$(base "$venv/bin/python")" != "$chosen" ]; then
        "$python" -c 'import ensurepip, venv' 2>/dev/null || {
            echo "setup: $python cannot make virtual environments; install its venv module (Debian: python3-venv)" >&2
            exit 1
        }
        echo "setup: $venv was made with $(base "$venv/bin/python"); it is made anew with $chosen"
        rm -rf "$venv"
    fi
    [ ! -x "$venv/bin/python" ] || chosen=$(base "$venv/bin/python")
    for path in "$chosen" "$(readlink -m "$venv")/bin"; do
        closed=$(closed "$path")
        [ -z "$closed" ] || echo "setup: warning: only $(id -un) can run $path: other users cannot enter $closed and get 'bad interpreter: Permission denied'; for them, run make PYTHON=/usr/bin/python3 setup in a clone that all can enter" >&2
    done
    exit 0
fi
[ -x "$venv/bin/python" ] || {
    echo "setup: making $venv"
    "$python" -m venv "$venv"
}

# Tells of pip's output what shows that it goes on; all of it is in the log.
progress() {
    found=0
    while read -r line; do
        printf '%s\n' "$line" >>"$log"
        case $line in
        Collecting* | Obtaining*)
            found=$((found + 1))
            [ $((found % 20)) -ne 0 ] || echo "setup:   $found packages found"
            ;;
        Downloading*[MG]B\))
            file=${line#Downloading }
            echo "setup:   downloading ${file%%-*} (${line##* (}"
            ;;
        "Installing collected packages"*) echo "setup:   unpacking $(echo "$line" | tr ',' '\n' | wc -l) packages" ;;
        esac
    done
}

# pip compiles one file after the other: below, all processors do it.
install() {
    { "$venv/bin/python" -m pip install --no-compile --disable-pip-version-check --progress-bar off "$@" 2>&1 && : >"$venv/.installed"; } | progress
    if [ ! -e "$venv/.installed" ]; then
        echo "setup: pip failed; the last lines of its log ($log):" >&2
        tail -n 20 "$log" >&2
        exit 1
    fi
    rm "$venv/.installed"
}

rm -f "$log" "$venv/.installed"
case $what in
product)
    echo "setup: installing Python packages into $venv (the first time takes a minute or two)"
    install --quiet --upgrade 'pip>=25.1'
    install --editable '.[sandbox]'
    ;;
tests)
    echo "setup: installing Python packages and what the tests need into $venv (torch is the largest; a few minutes)"
    install --quiet --upgrade 'pip>=25.1'
    install --editable '.[sandbox,scale,frames]' --group dev --group deploy --group torch
    ;;
bench)
    echo "setup: installing what benchmarks compare with into $venv"
    install --group bench
    ;;
*)
    echo "make_venv.sh: $what is none of product, tests, bench" >&2
    exit 2
    ;;
esac
# Meanwhile pytest compiles ours, as it does for collecting tests: else each of its workers would do that at the same time as the others.
collected=
if [ "$what" = tests ]; then
    "$venv/bin/pytest" --collect-only -qq >>"$log" 2>&1 &
    collected=$!
fi
"$venv/bin/python" - <<'END'
import compileall, re, sysconfig

# Some packages hold files for other Pythons, which do not compile: as with pip, that is no error. Nobody runs their own tests, and of some
# packages next to nothing is ever loaded.
UNUSED = "ansible_test|fontTools|graphql|mypyc?|networkx|pip|schemathesis|setuptools|torch/_inductor|torch/onnx|torch/testing"
for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
    compileall.compile_dir(path, rx=re.compile(f"/tests?/|/({UNUSED})/"), quiet=2, workers=0)
END
# What does not collect, the tests themselves say.
[ -z "$collected" ] || wait "$collected" || true
echo "setup: $venv is ready"
