"""From a committed event to every watcher: bus, Redis, hub, outlets. Storing is in `store`."""
