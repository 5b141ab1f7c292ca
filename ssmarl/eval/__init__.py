"""Evaluation: metrics of controllers, with confidence intervals."""
