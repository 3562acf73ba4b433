"""Episodes and their events in SQLite or PostgreSQL. Delivery to watchers is in `stream`."""
