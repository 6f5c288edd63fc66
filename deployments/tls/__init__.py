"""TLS between the processes of a service: its settings, its files, and what is checked of them."""
