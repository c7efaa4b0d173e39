"""Who asks and what they may do: logins, tokens, roles, ACLs."""
