"""Films, stills, curves and reports; `viz.live` is the live view."""
