"""What the four dashboards show."""
