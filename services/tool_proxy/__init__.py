"""The tool proxy: answers the agent's tool calls from a simulated world, and records them."""
