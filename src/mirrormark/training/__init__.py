"""Gather episodes, learn, evaluate, keep: a training run."""
