"""One module per page; each says its routes with `routes(site)`."""
