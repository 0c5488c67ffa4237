"""Date formats for English, the only language of the admin."""
