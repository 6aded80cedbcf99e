"""A real training job in miniature, with a fault that can be switched on while it runs."""
