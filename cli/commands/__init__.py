"""One module per noun of the command line; each parses, asks the client and prints."""
