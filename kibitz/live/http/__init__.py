"""The cockpit's routes and pages, and what protects them. They call `episodes`, `stream` and `store`."""
