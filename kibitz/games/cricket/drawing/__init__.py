"""What people see of a match: frame, fielders, scorecard, review. `ui` draws it on the page."""
