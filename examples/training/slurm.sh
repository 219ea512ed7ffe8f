#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#SBATCH --job-name=trimwire
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=01:00:00
# torchrun on every node: sbatch slurm.sh train.py --epochs 3
set -euo pipefail
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
# Slurm passes what is exported here on to all nodes. Set neither, and a rank takes the interface that reaches MASTER_ADDR, and its MTU:
#   export TRIMWIRE_SOCKET_IFNAME=ens3f      the interfaces of the trimming fabric, as NCCL_SOCKET_IFNAME; all that match carry data
#   export TRIMWIRE_MTU=1500                 where switches trim, the fabric file's mtu
exec srun --kill-on-bad-exit=1 torchrun \
  --nnodes "$SLURM_JOB_NUM_NODES" \
  --nproc-per-node "${SLURM_GPUS_ON_NODE:-8}" \
  --rdzv-backend c10d \
  --rdzv-id "$SLURM_JOB_ID" \
  --rdzv-endpoint "$MASTER_ADDR:29500" \
  "$@"
