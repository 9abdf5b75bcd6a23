"""Agents under test and their real tools: how they are reached, and with what secrets."""
