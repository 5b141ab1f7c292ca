"""Policies on disk and in memory."""
