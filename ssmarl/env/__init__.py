"""Safe MPE: scenario → state → neighbours → physics → costs → graph → environment."""
