"""What travels: the records of every topic, the codec, and the models that people author.

Nothing here performs I/O beyond reading this package's own files, and nothing here imports
`services` or `pipelines`.
"""
