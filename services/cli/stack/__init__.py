"""Starting and stopping the one-machine stack."""
