"""Many training runs at once: seeds × bodies × settings, each trained and examined by the ordinary commands.

- spec.py: the TOML file, and the jobs (one training and one exam each) that it means
- folder.py: where a sweep keeps what, and its commands; light, because Ray's workers import it
- trial.py: one job as a Ray Tune trainable
- run.py: `mirrormark sweep`
- status.py: `mirrormark runs`, estimates of time and disk
- results.py, report.py: one table, one results.json and one HTML page over all jobs
"""
