"""The kinds of agents, each driven in its own way behind one interface."""
