"""On PYTHONPATH, it puts a stand-in of seconds in the place of a sweep's train and exam commands.

Only for processes that trial.py starts. Each iteration takes FAKE_S seconds; the "weights" are a hash of seed
and iteration, so they show whether a resumed run went on where it stopped. FAKE_FAIL names a job that fails;
FAKE_EXAMS is a folder of finished exams.
"""

import os
import sys

if "FAKE_S" in os.environ and "mirrormark.cli import main" in " ".join(sys.orig_argv):
    import hashlib
    import json
    import shutil
    import signal
    import time
    import types
    from pathlib import Path

    ITERATIONS = 50

    def option(name: str) -> str:
        return sys.argv[sys.argv.index(name) + 1]

    def write(path: Path, text: str) -> None:
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").replace(path)

    def train(out: Path) -> None:
        asked = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        checkpoint, weights, done = out / "checkpoint.json", option("--seed"), 0
        if "--resume" in sys.argv:
            done, weights = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, weights)
        elif (out / "config.json").exists():
            sys.exit("it holds a run already")
        out.mkdir(parents=True, exist_ok=True)
        write(out / "config.json", '{"preset": "smoke", "ablation": null}')
        if os.environ.get("FAKE_FAIL") == out.name:
            sys.exit("no such luck")
        for index in range(done, ITERATIONS):
            time.sleep(float(os.environ["FAKE_S"]))
            weights = hashlib.sha256(f"{weights} {index}".encode()).hexdigest()
            write(checkpoint, json.dumps([index + 1, weights]))
            with open(out / "metrics.jsonl", "a") as lines:
                lines.write(
                    json.dumps({"iteration": index, "phase": "training", "seconds": index + 1.0}) + "\n"
                )
            if asked:
                write(out / "status.json", json.dumps({"state": "interrupted", "iteration": index + 1}))
                return
        write(out / "status.json", json.dumps({"state": "finished", "iteration": ITERATIONS, "episodes": 50}))

    def main() -> None:
        print(f"pid {os.getpid()}", flush=True)
        if sys.argv[1] == "train":
            train(Path(option("--out")))
            return
        out = Path(option("--out"))
        shutil.copytree(Path(os.environ["FAKE_EXAMS"]) / out.name, out, dirs_exist_ok=True)

    sys.modules["mirrormark.cli"] = types.ModuleType("mirrormark.cli")
    sys.modules["mirrormark.cli"].main = main  # type: ignore[attr-defined]
