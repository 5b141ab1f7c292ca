"""Decentralised fleets: one process per robot, messages between neighbours, simulated faults."""
