"""`specdec generate`: decodes every line of a file, in this process."""
