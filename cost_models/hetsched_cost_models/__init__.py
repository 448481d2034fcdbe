"""Cost models: a SoC and an operator graph in, a :class:`~hetsched.costs.CostTable` out."""

from hetsched_cost_models.parameters import parameter_version
from hetsched_cost_models.precisions import PRECISIONS
from hetsched_cost_models.table import build_table, table_at

__all__ = ["PRECISIONS", "build_table", "parameter_version", "table_at"]
