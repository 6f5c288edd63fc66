"""Contents of the four dashboards."""
