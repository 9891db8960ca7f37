"""Ours: an actor-critic (PPO's clipped objective) on the tokens of a frozen tokenizer, whose only cost comes
from a learned density; imagination adds a few percent of what it learns from. What hangs on the paper's
agent."""
