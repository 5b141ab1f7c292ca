"""Networks: observation → encoder → recurrent layer → action distribution or values."""
