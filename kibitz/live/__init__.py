"""Watch episodes as they are played: runner, events, store, bus, HTTP and WebSocket. Needs the extra `live`."""
