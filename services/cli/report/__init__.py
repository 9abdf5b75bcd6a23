"""A run as a page that people read: in one file, or served over a store."""
