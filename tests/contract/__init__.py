"""What clients were promised: proto/specdec/v1 against proto/baseline."""
