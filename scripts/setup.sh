#!/bin/sh
# Makes .venv with what a target needs: demo, dev or bench. Installs Debian packages where they are missing.
# `slurm` installs a real Slurm and makes no .venv; `file-systems` adds the network file systems that a cluster's scratch
# can be; `test` installs what tests use, where that needs no password.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

debian_install() {
    command -v apt-get >/dev/null || { echo "please install: $*" >&2; exit 1; }
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "$@" >/dev/null
}

has_programs() {
    for program in "$@"; do
        PATH="$PATH:/usr/sbin:/sbin:/usr/lib/openssh" command -v "$program" >/dev/null || return 1
    done
}

has_slurm() {
    has_programs munged slurmctld slurmd slurmdbd mariadbd mariadb-install-db sbatch sacctmgr
}

# The packages' own services are not started: the cluster has its own. A policy that is there already is left alone.
install_without_services() {
    policy=/usr/sbin/policy-rc.d
    if command -v apt-get >/dev/null && [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        trap 'exit 1' INT TERM HUP
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    echo "installing $1" >&2
    shift
    debian_install "$@"
}

slurm_install() {
    install_without_services Slurm slurm-wlm slurm-client slurmd slurmctld slurmdbd munge \
        slurm-wlm-mysql-plugin mariadb-server-core mariadb-client-core
}

# The packages of scripts/slurm/storage.py. In subshells: each removes the policy it made when it ends.
sshfs_install() {
    has_programs sshfs sftp-server || (install_without_services sshfs sshfs openssh-sftp-server)
}

file_systems_install() {
    sshfs_install
    has_programs mfsmaster mfschunkserver mfsmount ||
        (install_without_services MooseFS moosefs-master moosefs-chunkserver moosefs-client)
    has_programs glusterd gluster glusterfs || (install_without_services GlusterFS glusterfs-server glusterfs-client)
}

case "$1" in
slurm)
    command -v "$PYTHON" >/dev/null || debian_install python3
    has_slurm || slurm_install
    exit 0
    ;;
file-systems)
    file_systems_install
    exit 0
    ;;
test)
    # Tests say themselves what they skip.
    if [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then
        (has_slurm || slurm_install) || echo "Slurm cannot be installed" >&2
        [ ! -e /dev/fuse ] || sshfs_install || echo "sshfs cannot be installed" >&2
        (command -v zsh >/dev/null || debian_install zsh) || echo "zsh cannot be installed" >&2
        (command -v sshfs >/dev/null && [ -e /usr/lib/openssh/sftp-server ] || debian_install sshfs openssh-sftp-server) ||
            echo "sshfs cannot be installed" >&2
        command -v apptainer >/dev/null || sh scripts/apptainer.sh /opt/windlass-apptainer >/dev/null ||
            echo "Apptainer cannot be installed" >&2
        (command -v cc >/dev/null || debian_install gcc libc6-dev) || echo "a C compiler cannot be installed" >&2
    fi
    exit 0
    ;;
esac

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
    # The benchmark on a real Slurm: the cluster, and a peer.
    (has_slurm || slurm_install) || echo "Slurm cannot be installed" >&2
    .venv/bin/python -c 'import submitit' 2>/dev/null || .venv/bin/python -m pip install -q 'submitit==1.5.4' || true
    exit 0
    ;;
esac
touch ".venv/.$1"
[ "$1" != dev ] || touch .venv/.demo
