"""What a rendered set of objects must satisfy. Every check yields what is wrong, in words."""
