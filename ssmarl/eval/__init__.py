"""Evaluation: measures of controllers, with confidence intervals."""
