"""Networks over graphs: the same weights for any number of agents."""
