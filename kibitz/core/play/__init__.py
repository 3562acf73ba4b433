"""Playing one episode on the host: players, the loop, its events, packs. Batched play is in `evaluate` and `train`."""
