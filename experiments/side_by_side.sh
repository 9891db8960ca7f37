#!/usr/bin/env bash
# Several lives on one GPU, which they share by MPS: starts them and leaves them to themselves.
#
#   bash experiments/side_by_side.sh FOLDER LIVES.txt
#
# LIVES.txt has a line for each life: its name, then the words of `mirrormark train`, such as
#   seed-0 --preset swift --seed 0 --life.codec-from shipped
# Each gets an equal share of the cores. Run folders: FOLDER/NAME; what they print: FOLDER/NAME.log; a life
# ends after its lap on `kill $(cat FOLDER/NAME.pid)`.
set -euo pipefail
folder=$1 lives=$2
mkdir -p "$folder"
threads=$(($(nproc) / $(grep -c . "$lives")))
if command -v nvidia-cuda-mps-control >/dev/null; then
  pgrep -x nvidia-cuda-mps >/dev/null || nvidia-cuda-mps-control -d
fi
while read -r name words || [ -n "$name" ]; do
  [ -n "$name" ] || continue
  # shellcheck disable=SC2086 -- the words are meant to be split
  setsid "${PYTHON:-python3}" -m mirrormark train $words --world.threads $((threads > 0 ? threads : 1)) \
    --out "$folder/$name" >"$folder/$name.log" 2>&1 </dev/null &
  echo $! >"$folder/$name.pid"
done <"$lives"
