"""Many runs at once: seeds × bodies × settings, each trained and examined by the ordinary commands.

A sweep is a small file (spec.py), a list of jobs (plan.py), an engine that runs their commands (Ray or plain
processes), a driver that can be killed and started again (drive.py), and one report over all runs
(results.py).
"""
