"""A static copy of the pages, which opens from a disk and can be published."""
