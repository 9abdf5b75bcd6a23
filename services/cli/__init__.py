"""The `windtunnel` command. Everything it does can be done with a Kafka client and SQL."""
