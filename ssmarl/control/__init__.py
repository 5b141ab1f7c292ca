"""Classical control, and safety filters around any policy."""
