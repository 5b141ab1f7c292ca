"""Reinforcement learning: rollouts, advantages, critics, and the likelihood-ratio estimator."""
