"""The database backend: Django's, with cheaper checks of pooled connections."""
