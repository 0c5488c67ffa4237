"""How the admin writes dates: the same everywhere, with seconds."""
