"""The command `specdec`."""
