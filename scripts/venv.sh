# Sourced by scripts/demo, scripts/test and .ci/run: puts a virtual environment with this checkout at
# .venv, once, and again when pyproject.toml changed. Usage: make_venv GROUP... (dependency groups)
# Where Python may keep no compiled modules, each of hundreds of processes compiles all of prof anew.
unset PYTHONDONTWRITEBYTECODE
make_venv() {
    local python="${PYTHON:-}" stamp=.venv/prof-"$*".stamp
    if [ -z "$python" ]; then
        for python in python3.13 python3.12 python3.11 python3; do
            "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
        done
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        printf 'error: Python 3.11 or newer is needed\n\nhint: PYTHON=/path/to/python3.11 %s\n' "$0" >&2
        exit 3
    }
    [ -x .venv/bin/python ] || "$python" -m venv .venv
    [ "$stamp" -nt pyproject.toml ] && return 0
    echo "installing into .venv (once) …" >&2
    .venv/bin/python -m pip install -q --disable-pip-version-check --upgrade 'pip>=25.1'
    local group groups=()
    for group in "$@"; do groups+=(--group "$group"); done
    # setuptools warns of every editable installation, whatever the project can do about it.
    PYTHONWARNINGS=ignore .venv/bin/python -m pip install -q --disable-pip-version-check --editable '.[ncu]' ${groups[@]+"${groups[@]}"}
    touch "$stamp"
}
