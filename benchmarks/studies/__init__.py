"""Studies that are finished, each in a folder with its results."""
