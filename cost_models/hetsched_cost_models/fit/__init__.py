"""Fits the NPU parameters to public latencies: ``make fit``, or ``python -m hetsched_cost_models.fit``.

All that it reads is in the project: ``data/npu_latency.csv`` (the rows, with their sources) and ``data/npu_graphs.npz`` (the work of
the graphs that they were measured on, which ``python -m hetsched_cost_models.fit.extract`` makes from the graphs).
"""
