"""The embedded broker, and the brokers that the other tests run on."""
