"""The agent's mind: codec, dynamics, self-prior, policy, value (torch only; it never meets the physics)."""
