"""The demo: an order-support agent, the world behind its tools, and the suite that tests it."""
