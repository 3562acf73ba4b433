"""Asking a model: concurrency, retries, cache, budget, failures, usage. `providers` holds the models."""
