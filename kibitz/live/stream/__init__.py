"""From a driver to every watcher: observer, outlets, bus, Redis, hub. Committing events is the job of `store`."""
