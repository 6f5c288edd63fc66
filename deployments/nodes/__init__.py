"""Which nodes of a Ray cluster the processes of a service may run on."""
