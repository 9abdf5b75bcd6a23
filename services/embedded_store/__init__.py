"""The embedded ClickHouse engine as a process of its own.

chDB admits one process to a data directory, even for reading. This process is that one, and serves
a subset of ClickHouse's HTTP interface, so that services, dashboards and people share the data.
"""
