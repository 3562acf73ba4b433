"""Who may do what: roles and their tokens, the limit on wrong ones, the audit log. `http.security` asks here."""
