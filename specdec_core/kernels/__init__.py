"""CPU kernels in C, how they are built, and how Python calls them."""
