"""What a webhook is made of, without Django or a database: where it may go, how it is signed, sent and tried again."""
