"""One file a command: the list of files is the operator's manual."""
