"""The paper's agent: tokenizer, world model, self-prior, policy, value (torch only; no physics)."""
