"""What the coupled choice costs in acceptance, beside rejection sampling."""
