"""From episodes to advantages."""
