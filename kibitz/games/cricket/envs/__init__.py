"""Cricket for other trainers: Gymnasium and tool calls. All of them run `laws`."""
