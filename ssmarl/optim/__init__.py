"""Constrained trust-region steps: algebra, curvature, line search."""
