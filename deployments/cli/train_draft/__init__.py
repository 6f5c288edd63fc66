"""`specdec train-draft`: makes a draft for a target."""
