"""Tools for the project's own pages."""
