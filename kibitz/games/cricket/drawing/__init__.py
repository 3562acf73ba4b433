"""What people see of a match: frame, fielders, scorecard, review."""
