"""Date formats of the admin: ISO, with seconds."""
