"""Benchmarks: throughput on this machine."""
