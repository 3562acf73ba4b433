"""Cricket as an environment for other trainers: Gymnasium and tool calls. Both run `laws`."""
