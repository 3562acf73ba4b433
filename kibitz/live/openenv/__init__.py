"""OpenEnv and MCP for any game: sessions, sockets, tasks. The cockpit's own routes are in `http`."""
