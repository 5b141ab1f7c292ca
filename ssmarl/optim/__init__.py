"""Trust-region steps under constraints: algebra, curvature, line search."""
