"""E5-E7: free energies as pure functions. Lower is more expected (E5) or more familiar (E7). Unit: nats."""

from __future__ import annotations

from torch import Tensor


def variational_free_energy(complexity: Tensor, squared_error: Tensor) -> Tensor:
    """E5: F = KL[q(s|o) || p(ŝ|h)] − E_q log p(o|s), for Gaussian outputs of standard deviation 1, less the
    constant.

    complexity: that KL (...); squared_error: summed over the observation (...)."""
    return complexity + 0.5 * squared_error


def expected_free_energy_in_full(
    log_q_action: Tensor,
    log_q_tokens: Tensor,
    log_p_action: Tensor | float,
    log_p_observation: Tensor | float,
    log_self_prior: Tensor,
) -> Tensor:
    """E6: G = E[log q(a|s) + log q(s'|s,a) − log p(a) − log p(o|s) − log p̃(s)], one sample of each (...)."""
    return log_q_action + log_q_tokens - log_p_action - log_p_observation - log_self_prior


def expected_free_energy(log_self_prior: Tensor) -> Tensor:
    """E7: the G used, −log p̃(s). The action's entropy enters in the policy loss (E11); the rest of E6 is
    taken as constant (even action prior, fixed output variance, transition uncertainty left out)."""
    return -log_self_prior
