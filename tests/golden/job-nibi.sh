#!/bin/bash
#SBATCH --job-name=project-cartpole
#SBATCH --account=def-prof
#SBATCH --cpus-per-task=6
#SBATCH --mem=10000M
#SBATCH --gpus-per-node=h100:1
#SBATCH --time=0-03:05:00
#SBATCH --array=0-24%10
#SBATCH --output=/scratch/me/project/hpc_outputs/cartpole_%A_%a.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --comment=windlass:ID
#SBATCH --chdir=/home/me/project
#SBATCH --mail-user=me@example.org
#SBATCH --mail-type=END,FAIL
#SBATCH --exclude=node[3-5]

# One agent: it takes trials until none is left. It is compared with its checksum first.
trap '' USR1  # until the agent listens
exec /usr/bin/python3 -I -c 'import errno, hashlib, os, sys, time
path, wanted = sys.argv[1:3]
away = [getattr(errno, name, 0) for name in "EIO ESTALE EINTR ENOTCONN ETIMEDOUT ECONNRESET EHOSTDOWN".split()]
def read(path, pause=0.1):
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()), file.read()
    except OSError as error:
        if error.errno not in away or pause > 60:
            raise
    time.sleep(pause)
    return read(path, 2 * pause)
try:
    status, program = read(path)
except OSError as error:
    print("windlass: error:", path, "cannot be read:", error.strerror, "- once it can be, `windlass run` goes on.",
          file=sys.stderr)
    sys.exit(2)
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
' /scratch/me/project/cartpole/agent.pyz SHA256 /scratch/me/project/cartpole --job ID
