"""Work in items that any process on any machine can do: here, in local processes, or on a Ray cluster."""
