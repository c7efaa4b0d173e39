"""One port for many tenants: TLS connections are passed on by the name that the client asks for."""
