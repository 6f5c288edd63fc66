"""How long a stream stands still beside requests that are made to hold it up."""
