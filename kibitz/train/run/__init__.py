"""A training run and its folder: the loop, checkpoints, logs, progress. What is computed in it is one room up."""
