#!/usr/bin/env bash
# Row C of the redesign on the GPU machine: train the runs of a list side by side, examine them, pack what comes home.
#     bash experiments/slim/gpu.sh start RUNS.txt AT_ONCE EXAM...   an EXAM is NAME=RUN,RUN,RUN
#     bash experiments/slim/gpu.sh wait SECONDS $OUT                until all is done, or so long; then packs
set -uo pipefail
home=/root/slim
case "$1" in
start)
  mkdir -p $home/wheels $home/runs && cp -r src experiments $home/
  for wheel in carry/wheels/*.whl; do python3 -m zipfile -e "$wheel" $home/wheels; done
  cp "$2" $home/list.txt
  cd $home && setsid bash experiments/slim/gpu.sh work "$3" "${@:4}" >$home/work.log 2>&1 </dev/null &
  sleep 1 ;;
work)
  export PYTHONPATH=$home/src:$home/wheels MUJOCO_GL=disable PYTHONUNBUFFERED=1
  date; python3 experiments/side_by_side.py runs list.txt --at-once "$2" --threads 2; date
  for exam in "${@:3}"; do
    folders=$(echo "${exam#*=}" | tr ',' '\n' | sed 's|^|runs/|')
    python3 -m mirrormark exam $folders --runs 320 --first-exam-seed 1000 --device cuda --out "exams/${exam%%=*}" \
  --only mirror absent covered sham untrained iid babbling >"exam-${exam%%=*}.log" 2>&1 &
  done
  wait; date
  for run in runs/slim*/; do
    python3 experiments/ship.py "$(ls -d "$run"/snapshots/* | tail -n 1)" infant --to "packed/$(basename "$run")"
  done
  sha256sum runs/*/snapshots/*/* >sha256.txt
  date; touch done ;;
wait)
  cd $home; until=$(($(date +%s) + $2))
  while [ ! -e done ] && [ "$(date +%s)" -lt $until ]; do sleep 2; done
  for run in runs/*/; do echo "$run"; tail -n 2 "${run%/}.log" | cut -c1-300; done
  cat work.log; tail -n 20 exam-*.log 2>/dev/null; nvidia-smi | grep MiB
  # A call's files come back only from the latest call: everything there is, each time.
  tar czf "$3/runs.tgz" runs/*.log runs/*/*.json* work.log exam-*.log sha256.txt \
    exams/*/*.json exams/*/episodes.parquet exams/*/runs.csv exams/*/training.parquet exams/*/report.html 2>/dev/null
  for one in packed/*; do [ -d "$one" ] && tar cf "$3/$(basename "$one").tar" -C packed "$(basename "$one")"; done
  ls -la "$3" ;;
esac
true
