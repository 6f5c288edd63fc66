"""What traces and request lines cost."""
