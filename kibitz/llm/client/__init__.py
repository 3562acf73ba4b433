"""Asking a model: concurrency, retries, cache, budget, failures. Where models run is in `providers`."""
