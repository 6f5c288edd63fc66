"""Between processes: messages, where the coordinator listens, and who has fallen silent."""
