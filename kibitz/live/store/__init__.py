"""Where episodes are kept: stored events, SQLite, PostgreSQL. Nothing here knows who watches."""
