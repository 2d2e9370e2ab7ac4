"""What is done about trouble: incidents and the life of a command. Pure."""
