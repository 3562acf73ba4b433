"""Cricket as an environment for other trainers: Gymnasium and tool calls. All of them run `laws`."""
