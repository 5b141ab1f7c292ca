"""Films and curves from recorded episodes and metrics."""
