"""The same work done by different engines, one a file; each runs as a process of its own, told what to do by a :class:`Job`."""
