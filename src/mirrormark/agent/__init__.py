"""The agent's agent: tokenizer, dynamics, self-prior, policy, value (torch only; it never meets the
physics)."""
