"""Training runs: from a configuration to a policy on disk."""
