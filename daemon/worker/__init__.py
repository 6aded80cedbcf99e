"""The processes that touch the job's files, so that no hung mount or hostile file can touch us."""
