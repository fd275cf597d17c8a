"""One module per page; each returns its routes from `routes(site)`."""
