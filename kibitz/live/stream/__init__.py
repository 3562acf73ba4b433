"""From a committed event to every watcher: bus, Redis, hub, publisher. Storing is in `store`."""
