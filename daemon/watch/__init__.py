"""The loop that keeps one run under observation."""
