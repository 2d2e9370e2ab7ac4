"""What is wrong with a session: signals, window, rules. Pure: a state, an event and ``now`` go in, a new state comes out."""
