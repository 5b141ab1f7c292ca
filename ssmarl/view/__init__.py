"""A live page: watch a policy, and move things in its way."""
