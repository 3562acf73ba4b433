"""A process and its machine: folders and files, Ctrl-C, secure seeds, warnings given once. It knows no game."""
