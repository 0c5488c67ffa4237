"""What webhooks are made of; receivers are on loopback, in this process."""
