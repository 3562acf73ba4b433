"""The server's routes, pages and protections. What they call is in `episodes`, `stream` and `store`."""
