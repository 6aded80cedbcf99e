"""REST, Prometheus exposition and the dashboard over what storage holds."""
