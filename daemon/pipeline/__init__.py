"""From one checkpoint and its bases to readings, one layer in memory at a time."""
