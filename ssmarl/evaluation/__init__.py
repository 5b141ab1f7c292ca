"""How good a policy is, with confidence intervals."""
