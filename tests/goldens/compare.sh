#!/usr/bin/env bash
# Equal to the bit? Each commit records its own goldens, in a worktree of its own; then what differs is printed.
#   tests/goldens/compare.sh COMMIT_A COMMIT_B [PART ...]
# PYTHON: which python (default: python). GOLDENS: this folder's path, for commits without tests/goldens.
set -euo pipefail
[ $# -ge 2 ] || { sed -n 2,4p "$0"; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python}
room=$(mktemp -d)
finish() {
  for tree in "$room"/a "$room"/b; do
    if [ -d "$tree" ]; then git -C "$here" worktree remove --force "$tree"; fi
  done
  rm -rf "$room"
}
trap finish EXIT

record() { # NAME COMMIT [PART ...]
  local tree=$room/$1 commit=$2
  shift 2
  git -C "$here" worktree add --quiet --detach "$tree" "$commit"
  local folder=$tree/tests/goldens
  if [ ! -f "$folder/record.py" ]; then
    cp -r "${GOLDENS:?has no tests/goldens: give a copy of the folder in GOLDENS ($commit)}" "$folder"
  fi
  local only=()
  if [ $# -gt 0 ]; then only=(--only "$@"); fi
  echo "$commit:"
  PYTHONPATH=$tree/src "$python" "$folder/record.py" "$tree.json" "${only[@]}"
}

a=$(git -C "$here" rev-parse --verify "$1^{commit}") b=$(git -C "$here" rev-parse --verify "$2^{commit}")
shift 2
record a "$a" "$@"
record b "$b" "$@"
"$python" "$here/compare.py" "$room/a.json" "$room/b.json"
