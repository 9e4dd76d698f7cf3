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

# One agent: it takes trials until none is left.
trap '' USR1  # until the agent listens
exec /usr/bin/python3 -I /scratch/me/project/cartpole/agent.pyz /scratch/me/project/cartpole --job ID
