"""Settings of a service, and flags that its commands share."""
