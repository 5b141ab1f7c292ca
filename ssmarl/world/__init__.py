"""Safe MPE: the particle world with costs, as pure functions."""
