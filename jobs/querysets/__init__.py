"""How rows are read: who may see them, and what is derived from them in the same query."""
