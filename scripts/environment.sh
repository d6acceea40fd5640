# Sourced by the other scripts: makes the virtual environments, once per change of pyproject.toml.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
    echo "Python 3.11 or newer is needed, found: $("$PYTHON" --version 2>&1 || echo none); set PYTHON=/path/to/python3.11" >&2
    exit 1
}
say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
# environment DIR PACKAGES...: DIR holds PACKAGES; a stamp for each request remembers what is done.
environment() {
    local dir=$1 stamp; shift
    stamp="$dir/stamps/$(printf '%s ' "$*" "$PWD" "$(cat pyproject.toml)" | cksum | tr ' ' -)"
    [ -e "$stamp" ] && return
    say "Setting up $dir: $* (about a minute the first time)"
    [ -x "$dir/bin/python" ] || "$PYTHON" -m venv "$dir" || exit 1
    "$dir/bin/python" -m pip install --disable-pip-version-check --no-warn-script-location -q "$@" \
        2> "$dir/pip.log" || { cat "$dir/pip.log" >&2; exit 1; }
    mkdir -p "$dir/stamps" && touch "$stamp"
}
