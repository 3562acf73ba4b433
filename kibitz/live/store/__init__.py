"""Episodes and their events in SQLite or PostgreSQL. Who watches them is not known here: see `stream`."""
