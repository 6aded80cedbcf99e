"""What steps exist in a run's directory, and which of them are complete."""
