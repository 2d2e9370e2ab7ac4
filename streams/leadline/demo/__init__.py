"""``leadline demo``: a fleet of agents that compact for real, planted trouble in some of them, and the monitor that finds it.

The loop (:mod:`leadline.demo.loop`) is pure and seeded; everything that runs, waits or sends is around it.
"""
