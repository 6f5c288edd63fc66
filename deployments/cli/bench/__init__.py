"""`specdec bench`: loads a running server or the engine, and tells how fast it was."""
