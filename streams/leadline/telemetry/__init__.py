"""What Leadline tells about itself: names, traces, metrics. Nothing here decides anything, and all of it may be absent."""
