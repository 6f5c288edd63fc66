"""The parts of a decoder layer: linears, elementwise operations and attention."""
