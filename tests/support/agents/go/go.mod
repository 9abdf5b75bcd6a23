module windtunnel.test/agents

go 1.21
