"""Chassis of phones, fitted to public runs over minutes: what a run was, how the simulator plays it, and how far off it is.

``python -m hetsched_simulations.chassis [--check]``; docs/thermal.md says what the form is and shows measured against simulated.
"""
