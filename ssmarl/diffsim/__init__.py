"""Analytic gradients through the differentiable world (APG)."""
