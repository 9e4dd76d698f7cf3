#!/bin/sh
# Makes .venv with what a target needs: demo, dev or bench. Installs Debian packages where they are missing.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

debian_install() {
    command -v apt-get >/dev/null || { echo "please install: $*" >&2; exit 1; }
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

command -v "$PYTHON" >/dev/null || debian_install python3 python3-venv
if [ ! -x .venv/bin/python ]; then
    # Debian's python3 comes without the part that puts pip into a virtual environment.
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || debian_install python3-venv
    rm -rf .venv
    "$PYTHON" -m venv .venv
fi

case "$1" in
demo) .venv/bin/python -m pip install -q -e . numpy ;;
dev) .venv/bin/python -m pip install -q -e '.[dev]' ;;
bench)
    command -v cc >/dev/null || debian_install gcc libc6-dev
    # Only the warm-start benchmark needs it, and says so where it is missing.
    .venv/bin/python -c 'import torch' 2>/dev/null || .venv/bin/python -m pip install -q 'torch==2.13.0' || true
    exit 0
    ;;
esac
touch ".venv/.$1"
[ "$1" != dev ] || touch .venv/.demo
