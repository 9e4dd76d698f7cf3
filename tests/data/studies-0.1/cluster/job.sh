#!/bin/bash
#SBATCH --job-name=project-cluster
#SBATCH --partition=debug
#SBATCH --cpus-per-task=2
#SBATCH --mem=1000M
#SBATCH --time=0-00:06:00
#SBATCH --array=0-0
#SBATCH --output=/home/user/scratch/project/hpc_outputs/cluster_%A_%a.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@90
#SBATCH --requeue
#SBATCH --comment=windlass:20261118-020956-211ec5
#SBATCH --chdir=/home/user/project

# One agent: it takes trials until none is left. It is compared with its checksum first.
trap '' USR1  # until the agent listens
exec /home/user/venv/bin/python3 -I -c 'import hashlib, os, sys
path, wanted = sys.argv[1:3]
def read(path):
    with open(path, "rb") as file:
        return os.fstat(file.fileno()), file.read()
status, program = read(path)
if hashlib.sha256(program).hexdigest() != wanted:
    for found in (status, os.stat(os.path.dirname(path))):
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            try:
                program = read("%s-%s.pyz" % (path[:-4], wanted[:12]))[1]
            except OSError:
                pass
            if hashlib.sha256(program).hexdigest() == wanted:
                break
            print("windlass:", path, "is not the agent that was to be started here, and somebody else may have put it "
                  "there. It was not executed. `windlass run` writes it anew.", file=sys.stderr)
            sys.exit(2)
try:
    copy = os.memfd_create("windlass")
except (AttributeError, OSError):
    import tempfile
    copy = os.dup(tempfile.TemporaryFile().fileno())
with os.fdopen(os.dup(copy), "wb") as file:
    file.write(program)
sys.argv[:3] = [path]
sys.path.insert(0, "/proc/self/fd/%d" % copy)
from windlass.agent.__main__ import main
sys.exit(main())
' /home/user/scratch/project/cluster/agent.pyz 9712faed4ef098574d889833e308e1100d320ccc512a6a785c60789ef77ae94d /home/user/scratch/project/cluster --job 20261118-020956-211ec5
