"""What the seeds wrote, run as they wrote it."""
